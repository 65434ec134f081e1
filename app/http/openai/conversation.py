"""Messages of a request, reduced to the text that a chat template takes."""

from collections.abc import Sequence
from typing import Final

from app.domain.errors import InvalidRequest, MissingParameter, UnsupportedParameter
from app.http.openai.schema import ContentPart, MessageParam
from shared.limits import MESSAGES_MAX
from shared.requests import ChatMessage, Role

ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

_SHOWN_CHARS: Final = 40


def conversation(messages: Sequence[MessageParam]) -> tuple[ChatMessage, ...]:
    """All turns, in order.

    Raises:
        InvalidRequest: naming the message, and within it the field, that cannot be used.
    """
    if not messages:
        raise InvalidRequest("'messages' must hold at least one message.", param="messages")
    if len(messages) > MESSAGES_MAX:
        text = f"'messages' holds {len(messages)} messages; at most {MESSAGES_MAX} are allowed."
        raise InvalidRequest(text, param="messages")
    return tuple(_turn(message, f"messages[{i}]") for i, message in enumerate(messages))


def _turn(message: MessageParam, path: str) -> ChatMessage:
    role = ROLES.get(message.role)
    if role is None:
        raise _unknown_role(message.role, path)
    for field in ("tool_calls", "function_call", "audio"):
        if getattr(message, field):
            param = f"{path}.{field}"
            text = f"Unsupported parameter: '{param}' is not supported by this server."
            raise UnsupportedParameter(text, param=param)
    return ChatMessage(role=role, content=_content(message, path), name=message.name)


def _content(message: MessageParam, path: str) -> str:
    content = message.content
    if content is None:
        # A turn in which the assistant refused has its text there, and no content.
        if message.role == "assistant" and message.refusal is not None:
            return message.refusal
        param = f"{path}.content"
        raise MissingParameter(f"'{param}' is missing.", param=param)
    if isinstance(content, str):
        return content
    if not content:
        param = f"{path}.content"
        raise InvalidRequest(f"'{param}' must hold at least one part.", param=param)
    return "".join(_part(part, f"{path}.content[{i}]") for i, part in enumerate(content))


def _part(part: ContentPart, path: str) -> str:
    if part.type not in ("text", "refusal"):
        text = (
            f"'{path}' is of type '{part.type[:_SHOWN_CHARS]}': "
            "this model takes only parts of type 'text'."
        )
        raise UnsupportedParameter(text, param=path)
    said = part.text if part.type == "text" else part.refusal
    if said is None:
        param = f"{path}.{part.type}"
        raise MissingParameter(f"'{param}' is missing.", param=param)
    return said


def _unknown_role(role: str, path: str) -> InvalidRequest:
    param = f"{path}.role"
    allowed = ", ".join(ROLES)
    return InvalidRequest(
        f"'{role[:_SHOWN_CHARS]}' is no valid '{param}'. Allowed are: {allowed}.", param=param
    )
