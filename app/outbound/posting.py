"""One POST to somebody else's server, to an address that was checked and no other.

The name is looked up once for each connection, its addresses are judged, and the connection goes to
one that passed: a name that has another address a moment later leads nowhere else. Redirects are
not followed, proxies of the environment not used, and of the answer only the status counts, and
when to come again. Import this where it is needed: it loads an HTTP client.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import httpcore2
import msgspec
from typing_extensions import override

REPLY_BYTES_MAX: Final = 65_536
"""Of an answer's body, read so that the connection can be used again; more of it ends it."""

RETRY_AFTER_CHARS_MAX: Final = 64

REPLY_S: Final = 1.0
"""How long that may take."""

KEPT_S: Final = 5.0
"""How long an idle connection is kept."""

ADDRESSES_MAX: Final = 4
"""Of one name that are tried, one after the other."""

Permitted = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host that may be connected to; raises OSError when there are none."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: a status, or why there is none."""

    status: int | None = None
    error: str | None = None
    retry_after: str | None = None
    took_ms: int = 0


class Posting:
    """What all posters share. Made in a thread: to read the certificates takes a while."""

    def __init__(self) -> None:
        self._tls = httpcore2.default_ssl_context()

    def poster(self, permitted: Permitted, timeout_s: float) -> "Poster":
        """One for one receiver."""
        return Poster(self._tls, permitted, timeout_s)


class Poster:
    """Posts to one receiver, whose connection is kept for a moment."""

    def __init__(self, tls: ssl.SSLContext, permitted: Permitted, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=2,
            keepalive_expiry=KEPT_S,
            network_backend=_Pinned(permitted),
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Post this, and what came of it within the time."""
        began = time.monotonic()
        answer = await self._ask(url, list(headers.items()), body)
        took_ms = round((time.monotonic() - began) * 1000)
        return msgspec.structs.replace(answer, took_ms=took_ms)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._pool.aclose()

    async def _ask(self, url: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        answer: Answer | None = None
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._pool.stream("POST", url, headers=headers, content=body) as response,
            ):
                answer = Answer(status=response.status, retry_after=_retry_after(response))
                await _skip(response)
        except TimeoutError:
            return answer or Answer(error=f"no answer within {self._timeout_s:g} s")
        except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            return answer or Answer(error=_said(error))
        return answer


def _retry_after(response: httpcore2.Response) -> str | None:
    for name, value in response.headers:
        if name.lower() == b"retry-after":
            return value[:RETRY_AFTER_CHARS_MAX].decode("latin-1")
    return None


async def _skip(response: httpcore2.Response) -> None:
    read = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(REPLY_S):
            async for piece in response.aiter_stream():
                read += len(piece)
                if read > REPLY_BYTES_MAX:
                    return


class _Pinned(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that are permitted, and to nothing by name."""

    def __init__(self, permitted: Permitted) -> None:
        self._permitted = permitted
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """To the first of the host's addresses that answers."""
        failure: Exception = OSError(f"{host} has no address")
        for address in (await self._permitted(host, port))[:ADDRESSES_MAX]:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except httpcore2.NetworkError as error:
                failure = error
        raise failure


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
