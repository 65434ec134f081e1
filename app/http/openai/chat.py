"""``POST /v1/chat/completions``: one job per request, which lives as long as its connection.

With an idempotency key the job is stored: a second request with the same key is shown the same
answer, from its start, whether it still runs or has ended.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from litestar import Controller, MediaType, Request, Response, post
from litestar.di import NamedDependency
from litestar.types import Receive, Scope, Send

from app.domain.draft import JobDraft
from app.domain.events import FollowedEvent
from app.domain.job import Durability
from app.http.attachment import Attachment
from app.http.body import read_body
from app.http.disconnect import ClientGone, Connection
from app.http.endings import refuse_if_failed
from app.http.native.idempotency import REPLAYED, idempotency_key
from app.http.openai.completion import CompletionGatherer
from app.http.openai.decode import decode_chat, to_draft
from app.http.openai.documentation import CHAT_RESPONSES, ChatOperation
from app.http.openai.identity import Identity, chat_identity
from app.http.openai.render import ChatChunks
from app.http.openai.schema import ChatCompletionRequest
from app.http.ports import Ports, Ticket
from app.http.request_id import name_job
from app.http.sse import EventStream, StreamedAnswer, StreamLimits
from shared.limits import SEED_MAX

PATH: Final = "/v1/chat/completions"

KEPT_S: Final = 24 * 3600.0
"""How long an answer that was asked for with an idempotency key is kept after its end."""

GATHER_WAIT_S: Final = 60.0
"""One wait for events of an answer that is sent whole; silence just makes it wait again."""

IGNORED_HEADER: Final = "x-ignored-params"
IGNORED_HEADER_CHARS_MAX: Final = 512
IGNORED_NAME_CHARS_MAX: Final = 64

_UNSAFE_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.\-]")


class ChatCall(msgspec.Struct, frozen=True):
    """A request as it goes through this door: what was asked, the draft, what was ignored."""

    request: ChatCompletionRequest
    draft: JobDraft
    headers: dict[str, str]

    def identity(self, ticket: Ticket) -> Identity:
        """What the answer's objects have in common."""
        return chat_identity(ticket, tier_wanted=self.request.service_tier is not None)

    def headers_for(self, ticket: Ticket) -> dict[str, str]:
        """What the answer's head says besides."""
        return {**self.headers, **REPLAYED} if ticket.replayed else self.headers


class ChatDoor:
    """Turns chat requests into attached jobs and their events into answers."""

    def __init__(self, ports: Ports[Any], limits: StreamLimits, body_bytes_max: int) -> None:
        self._ports = ports
        self._limits = limits
        self._body_bytes_max = body_bytes_max

    async def answer(self, request: Request[Any, Any, Any]) -> Response[Any]:
        """The answer, or one that will be streamed.

        Raises:
            JobServerError: when the request is refused or its job fails before the first byte.
        """
        call = _call(await read_body(request, self._body_bytes_max), request.headers)
        if not call.request.stream:
            return await self._whole(call, request)

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            await self._stream(call, scope, receive, send)

        return StreamedAnswer(stream)

    async def _whole(self, call: ChatCall, request: Request[Any, Any, Any]) -> Response[bytes]:
        with await self._submit(call, request.scope) as attachment:
            gatherer = CompletionGatherer(call.identity(attachment.ticket))
            async with Connection(request.receive):
                gatherer.add(await self._await_start(attachment))
                while not attachment.ended:
                    gatherer.add(await attachment.take(GATHER_WAIT_S))
            headers = call.headers_for(attachment.ticket)
        return Response(gatherer.body(), headers=headers, media_type=MediaType.JSON)

    async def _stream(self, call: ChatCall, scope: Scope, receive: Receive, send: Send) -> None:
        with await self._submit(call, scope) as attachment:
            try:
                async with Connection(receive) as connection:
                    first = await self._await_start(attachment)
                    stream = EventStream(
                        followed=attachment,
                        dialect=_chunks(call, attachment.ticket),
                        limits=self._limits,
                        connection=connection,
                        send=send,
                    )
                    await stream.write(first, call.headers_for(attachment.ticket))
            except ClientGone:
                pass  # nobody is left to be answered; leaving the attachment cancels the job

    async def _submit(self, call: ChatCall, scope: Scope) -> Attachment:
        # Not interruptible: whoever is cut off in here could not tell whether there is a job now.
        ticket: Ticket = await self._ports.submission.submit(call.draft)
        name_job(scope, ticket.job_id)
        return Attachment(ticket, self._ports.cancellation)

    async def _await_start(self, attachment: Attachment) -> Sequence[FollowedEvent]:
        first = await self._ports.following.await_start(attachment.ticket)
        events = attachment.seen(() if first is None else (first,))
        refuse_if_failed(first)
        return events


class ChatController(Controller):
    """Chat completions."""

    path = PATH
    tags = ("Chat",)

    @post(
        operation_id="createChatCompletion",
        summary="Create a chat completion",
        operation_class=ChatOperation,
        status_code=200,
        responses=CHAT_RESPONSES,
    )
    async def create(
        self, request: Request[Any, Any, Any], chat: NamedDependency[ChatDoor]
    ) -> Response[Any]:
        """Continues a conversation with one turn of the assistant, whole or as a stream."""
        return await chat.answer(request)


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """The header that names ignored fields: bounded, and safe whatever a client called them."""
    kept: list[str] = []
    room = IGNORED_HEADER_CHARS_MAX
    for name in names:
        safe = _UNSAFE_IN_NAMES.sub("?", name[:IGNORED_NAME_CHARS_MAX])
        room -= len(safe) + 2
        if room < 0:
            break
        kept.append(safe)
    return {IGNORED_HEADER: ", ".join(kept)} if kept else {}


def _call(body: bytes, headers: Mapping[str, str]) -> ChatCall:
    chat = decode_chat(body)
    draft = to_draft(chat.request, lambda: secrets.randbelow(SEED_MAX + 1))
    key = idempotency_key(headers, PATH, chat.request)
    if key is not None:  # to be found again it must be stored, for as long as the key lives
        draft = msgspec.structs.replace(
            draft, durability=Durability.STORED, idempotency=key, keep_s=KEPT_S
        )
    return ChatCall(chat.request, draft, ignored_header(chat.ignored))


def _chunks(call: ChatCall, ticket: Ticket) -> ChatChunks:
    options = call.request.stream_options
    include_usage = options is not None and bool(options.include_usage)
    return ChatChunks(call.identity(ticket), include_usage=include_usage)
