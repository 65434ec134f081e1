"""Reading a request's body: bounded in size and in silence, and over when the client leaves."""

import asyncio
from typing import Any, Final

from litestar import Request
from litestar.exceptions import HTTPException
from litestar.types import Receive

from app.domain.errors import RequestTooLarge
from app.http.disconnect import ClientGone

BODY_SILENCE_S: Final = 30.0
"""How long the next piece of a body may take to arrive."""

BODY_S: Final = 600.0
"""How long a whole body may take."""

_MEBIBYTE: Final = 1024 * 1024


async def read_body(
    request: Request[Any, Any, Any], bytes_max: int, silence_s: float = BODY_SILENCE_S
) -> bytes:
    """The whole body.

    Raises:
        RequestTooLarge: as soon as it is known, from the header or from what has arrived.
        ClientGone: when the connection ended before the body did.
        HTTPException: 408, when the rest of the body does not come, or comes too slowly.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(BODY_S):
            return await _collect(request.receive, bytes_max, silence_s)
    except TimeoutError:
        raise _too_late() from None


async def _collect(receive: Receive, bytes_max: int, silence_s: float) -> bytes:
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await _next(receive, silence_s)
        if message["type"] != "http.request":
            raise ClientGone
        piece, more = message.get("body", b""), message.get("more_body", False)
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise _too_large(bytes_max)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _next(receive: Receive, silence_s: float) -> Any:
    try:
        async with asyncio.timeout(silence_s):
            return await receive()
    except TimeoutError:
        raise _too_late() from None


def _too_late() -> HTTPException:
    text = "The body did not arrive in time."
    return HTTPException(text, status_code=408, headers={"connection": "close"})


def _too_large(bytes_max: int) -> RequestTooLarge:
    limit = f"{bytes_max // _MEBIBYTE} MiB" if bytes_max >= _MEBIBYTE else f"{bytes_max} bytes"
    return RequestTooLarge(f"The body is larger than the {limit} that this server takes.")
