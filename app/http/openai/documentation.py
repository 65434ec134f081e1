"""What the OpenAPI document says about bodies that the framework does not decode itself."""

from dataclasses import dataclass
from typing import ClassVar, Final

from litestar.openapi.datastructures import ResponseSpec

from app.http.documentation import Body, Documented
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
class ChatOperation(Documented):
    """The operation with its request body and what its stream looks like."""

    body: ClassVar[Body] = ChatCompletionRequest
    note: ClassVar[str] = STREAM_NOTE
