"""What the OpenAPI document says about bodies that the framework does not decode itself."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    RequestBody,
    Schema,
)

from app.http.errors import ErrorAnswer
from app.http.openai.schema import ChatCompletion, ChatCompletionRequest

STREAM_NOTE: Final = (
    "With `stream: true` the answer is `text/event-stream`: frames `data: {…}` with objects of "
    'type `chat.completion.chunk`, an in-band `data: {"error": …}` if the job fails after the '
    "first byte, and always `data: [DONE]` last. Comments (`: ping`) keep a silent stream open."
)

CHAT_RESPONSES: Final = {
    200: ResponseSpec(ChatCompletion, description="The answer.", generate_examples=False),
    **{
        status: ResponseSpec(ErrorAnswer, description=why, generate_examples=False)
        for status, why in {
            400: "The request is malformed, or asks for something that is not supported.",
            404: "There is no such model; the message lists those there are.",
            413: "The body is too large.",
            429: "Too many requests wait; `Retry-After` says when to come again.",
            500: "The server or its worker failed.",
            503: "No worker for the model, or the server is stopping.",
        }.items()
    },
}


@dataclass
class ChatOperation(Operation):
    """The operation with its request body and what its stream looks like."""

    def __post_init__(self) -> None:
        schema = json_schema(ChatCompletionRequest)
        self.request_body = RequestBody(
            content={"application/json": OpenAPIMediaType(schema=schema)}, required=True
        )
        self.description = f"{self.description or ''}\n\n{STREAM_NOTE}".strip()


def json_schema(struct: type[msgspec.Struct]) -> Schema:
    """The schema of a struct, with those that it refers to written out in place."""
    (_root,), components = msgspec.json.schema_components([struct])
    return _schema(components[struct.__name__], components)


def _schema(node: dict[str, Any], components: dict[str, Any]) -> Schema:
    if reference := node.get("$ref"):
        return _schema(components[reference.rpartition("/")[2]], components)
    properties = node.get("properties")
    return Schema(
        title=node.get("title"),
        description=node.get("description"),
        type=OpenAPIType(node["type"]) if "type" in node else None,
        enum=node.get("enum"),
        default=node.get("default"),
        minimum=node.get("minimum"),
        maximum=node.get("maximum"),
        exclusive_minimum=node.get("exclusiveMinimum"),
        min_length=node.get("minLength"),
        max_length=node.get("maxLength"),
        required=node.get("required") or None,
        any_of=[_schema(branch, components) for branch in node.get("anyOf", ())] or None,
        items=_schema(node["items"], components) if "items" in node else None,
        properties={name: _schema(value, components) for name, value in properties.items()}
        if properties
        else None,
    )
