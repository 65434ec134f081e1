"""What the OpenAPI document says of requests that the framework does not read itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    OpenAPIFormat,
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    Parameter,
    RequestBody,
    Schema,
)

from app.http.errors import ErrorAnswer

Body = type[msgspec.Struct] | None

ANSWERS: Final = {
    200: "The answer.",
    201: "Made.",
    202: "Recorded.",
    400: "The request is malformed, or names what is unknown; `error.param` says where.",
    403: "This is not answered to callers elsewhere.",
    404: "There is no such thing here.",
    410: "What was asked for is not kept any more.",
    412: "It is not as the request expects; the message says how it is.",
    413: "The body is too large.",
    422: "What is asked for does not go together with what is there; the message says why.",
    429: "Too many jobs wait; `Retry-After` says when to come again.",
    503: "The server cannot take this now; `Retry-After` says when to come again.",
    507: "The disk is full.",
}


def answers(answer: type[msgspec.Struct] | None, *statuses: int) -> dict[int, ResponseSpec]:
    """The documented answers: the struct with a status below 300, errors with the others."""
    return {
        status: ResponseSpec(
            answer if status < 300 else ErrorAnswer,
            description=ANSWERS[status],
            generate_examples=False,
        )
        for status in statuses
    }


def query_parameter(name: str, description: str, schema: Schema | None = None) -> Parameter:
    """An optional parameter of the query; a string unless the schema says otherwise."""
    schema = schema or Schema(type=OpenAPIType.STRING)
    return Parameter(name=name, param_in="query", schema=schema, description=description)


def header(name: str, description: str) -> Parameter:
    """An optional header of the request."""
    schema = Schema(type=OpenAPIType.STRING)
    return Parameter(name=name, param_in="header", schema=schema, description=description)


@dataclass
class Documented(Operation):
    """An operation that says itself what its body, its query and its headers are."""

    body: ClassVar[Body] = None
    asked: ClassVar[tuple[Parameter, ...]] = ()
    note: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.body is not None:
            content = {"application/json": OpenAPIMediaType(schema=json_schema(self.body))}
            self.request_body = RequestBody(content=content, required=True)
        self.parameters = [*(self.parameters or ()), *self.asked] or None
        self.description = f"{self.description or ''}\n\n{self.note}".strip()


def json_schema(struct: type[msgspec.Struct]) -> Schema:
    """The schema of a struct, with those that it refers to written out in place."""
    (_root,), components = msgspec.json.schema_components([struct])
    return _schema(components[struct.__name__], components)


def _schema(node: Mapping[str, Any], components: Mapping[str, Any]) -> Schema:
    if reference := node.get("$ref"):
        return _schema(components[reference.rpartition("/")[2]], components)
    properties = node.get("properties")
    additional: Any = node.get("additionalProperties")
    return Schema(
        title=node.get("title"),
        description=node.get("description"),
        type=OpenAPIType(node["type"]) if "type" in node else None,
        format=OpenAPIFormat(node["format"]) if "format" in node else None,
        enum=node.get("enum"),
        default=node.get("default"),
        minimum=node.get("minimum"),
        maximum=node.get("maximum"),
        exclusive_minimum=node.get("exclusiveMinimum"),
        min_length=node.get("minLength"),
        max_length=node.get("maxLength"),
        pattern=node.get("pattern"),
        min_items=node.get("minItems"),
        max_items=node.get("maxItems"),
        required=node.get("required") or None,
        any_of=[_schema(branch, components) for branch in node.get("anyOf", ())] or None,
        items=_schema(node["items"], components) if "items" in node else None,
        properties={name: _schema(value, components) for name, value in properties.items()}
        if properties
        else None,
        additional_properties=_schema(additional, components) if additional else additional,
    )
