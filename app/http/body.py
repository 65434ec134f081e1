"""Reading a request's body: bounded, and over when the client leaves."""

from typing import Any, Final

from litestar import Request
from litestar.types import Receive

from app.domain.errors import RequestTooLarge
from app.http.disconnect import ClientGone

_MEBIBYTE: Final = 1024 * 1024


async def read_body(request: Request[Any, Any, Any], bytes_max: int) -> bytes:
    """The whole body.

    Raises:
        RequestTooLarge: as soon as it is known, from the header or from what has arrived.
        ClientGone: when the connection ended before the body did.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > bytes_max:
        raise _too_large(bytes_max)
    return await _collect(request.receive, bytes_max)


async def _collect(receive: Receive, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        piece, more = message.get("body", b""), message.get("more_body", False)
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise _too_large(bytes_max)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(bytes_max: int) -> RequestTooLarge:
    limit = f"{bytes_max // _MEBIBYTE} MiB" if bytes_max >= _MEBIBYTE else f"{bytes_max} bytes"
    return RequestTooLarge(f"The body is larger than the {limit} that this server takes.")
