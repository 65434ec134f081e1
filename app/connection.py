"""uvicorn's HTTP/1.1 connection, with a limit on the head of a request, in bytes and in time.

uvicorn's takes headers of any length, and waits for ever for a head that never ends, or never
begins: whoever opens connections and says nothing would hold one of our descriptors each.
"""

import asyncio
from typing import Any, Final

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

HEAD_BYTES_MAX: Final = 65_536
"""Request line and headers together."""

HEAD_S: Final = 30.0
"""From the connection, or the first byte of a further request, to the end of the head."""

LINGER_S: Final = 1.0
"""How long what a refused client still sends is read and thrown away: to close on unread bytes
would reset the connection, and the client might never see the answer."""

_TOO_LARGE: Final = (
    431,
    b"Request Header Fields Too Large",
    f"The request line and headers are larger than {HEAD_BYTES_MAX} bytes. Send less.",
)
_TOO_LATE: Final = (
    408,
    b"Request Timeout",
    f"The request's headers did not arrive within {HEAD_S:g} s. Send it again.",
)


class Connection(HttpToolsProtocol):
    """One client. ``head_s`` is there for tests."""

    head_s = HEAD_S

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._head_open = False
        self._asked = False
        self._refused = False

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(*_TOO_LARGE)
        if self._head_open or not self._asked or self.cycle.response_complete:
            self._wait_for_head()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open, self._head_bytes = True, 0

    @override
    def on_headers_complete(self) -> None:
        self._head_open = False
        self._stop_waiting()
        if sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_MAX:
            self._refuse(*_TOO_LARGE)
        if not self._refused:
            self._asked = True
            super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        if self._asked and not self._refused:
            super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(400, b"Bad Request", msg)

    def _wait_for_head(self) -> None:
        if self._head_timer is None and not self._refused and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_s, self._too_late)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_late(self) -> None:
        self._head_timer = None
        self._refuse(*_TOO_LATE)

    def _refuse(self, status: int, phrase: bytes, message: str) -> None:
        """Answer in the shape of every other error, and close."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._stop_waiting()
        body = (
            f'{{"error":{{"message":"{message}","type":"invalid_request_error",'
            '"param":null,"code":null}}'
        ).encode()
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        close = b"connection: close\r\n\r\n"
        self.transport.write(head % (status, phrase, len(body)) + close + body)
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_S, self.transport.close)
