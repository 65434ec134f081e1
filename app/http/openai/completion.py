"""The answer of a request that did not ask for a stream: events gathered into one object."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET

from app.domain.events import Ended, FollowedEvent, Output
from app.domain.job import Ending, Usage
from app.http.endings import ending_error
from app.http.openai.identity import Identity
from app.http.openai.schema import (
    AssistantMessage,
    ChatCompletion,
    CompletionChoice,
    CompletionTokensDetails,
    PromptTokensDetails,
    UsageBlock,
)
from shared.messages import Finish, Reasoning, Text

FinishReason = Literal["stop", "length"]


def usage_block(usage: Usage) -> UsageBlock:
    """Counted tokens in OpenAI's words."""
    return UsageBlock(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=usage.cached_tokens),
        completion_tokens_details=CompletionTokensDetails(reasoning_tokens=usage.reasoning_tokens),
    )


def finish_reason(part: Finish | None, ending: Ending) -> FinishReason:
    """Why a choice of a completed job ended: as its own last part says, else as the job does."""
    reason = ending.finish_reason if part is None else part.reason
    return "length" if reason == "length" else "stop"


class CompletionGatherer:
    """Gathers the events of one job, whose only choice is number 0."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish: Finish | None = None
        self._ending: Ending | None = None

    def add(self, events: Sequence[FollowedEvent]) -> None:
        """Takes in what has happened."""
        for event in events:
            if isinstance(event, Output):
                self._add_output(event)
            elif isinstance(event, Ended):
                self._ending = event.ending

    def body(self) -> bytes:
        """The finished object as JSON. To be called after ``Ended``.

        Raises:
            JobServerError: what the job failed with.
        """
        ending = self._ending
        assert ending is not None, "the job has not ended"  # noqa: S101
        if (error := ending_error(ending)) is not None:
            raise error
        return msgspec.json.encode(self._completion(ending))

    def _add_output(self, output: Output) -> None:
        for part in output.parts:
            match part:
                case Text(text):
                    self._text.append(text)
                case Reasoning(text):
                    self._reasoning.append(text)
                case Finish():
                    self._finish = part
                case _:
                    pass

    def _completion(self, ending: Ending) -> ChatCompletion:
        identity = self._identity
        message = AssistantMessage(
            content="".join(self._text),
            reasoning_content="".join(self._reasoning) or UNSET,
        )
        choice = CompletionChoice(
            index=0, message=message, finish_reason=finish_reason(self._finish, ending)
        )
        return ChatCompletion(
            id=identity.id,
            created=identity.created,
            model=identity.model,
            choices=[choice],
            usage=usage_block(ending.usage),
            service_tier=identity.service_tier or UNSET,
        )
