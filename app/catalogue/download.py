"""Fetch one file over HTTP so that an interrupted download goes on where it stopped.

The bytes go to `<target>.part`; a second try asks for the rest with a Range request. Only when the
whole file has the digest that was asked for does it get its name. Proxies come from the
environment, certificates from PIP_CERT or REQUESTS_CA_BUNDLE when set (OpenSSL reads SSL_CERT_FILE
by itself).
"""

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

CHUNK_BYTES = 1 << 20
TIMEOUT_S = 60

Progress = Callable[[int, int], None]
"""Told after each piece: bytes there, bytes in all."""


class DownloadFailed(Exception):
    """The file could not be fetched, or it is not the one that was asked for."""


def fetch(url: str, target: Path, *, sha256: str, size: int, progress: Progress) -> None:
    """Bring `url` to `target`, going on from a `.part` of an earlier try. Raises DownloadFailed."""
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    _fetch_with_tries(url, part, size, progress)
    if digest(part) != sha256:
        part.unlink()
        raise DownloadFailed(f"{target.name} does not have the digest that mlxq was written for")
    part.replace(target)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_with_tries(url: str, part: Path, size: int, progress: Progress) -> None:
    """Go on after a cut connection, as long as each try brings something."""
    while True:
        before = _length(part)
        try:
            return _fetch_part(url, part, size, progress)
        except (OSError, http.client.HTTPException) as error:
            if _length(part) <= before:
                raise DownloadFailed(f"{_host(url)}: {_reason(error)}") from error


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _fetch_part(url: str, part: Path, size: int, progress: Progress) -> None:
    have = _length(part)
    if have > size:
        part.unlink()
        have = 0
    if have == size:
        return
    request = urllib.request.Request(url)  # noqa: S310 - `_opener` has no handler but http and https
    if have:
        request.add_header("Range", f"bytes={have}-")
    with _opener().open(request, timeout=TIMEOUT_S) as opened:
        response = cast("http.client.HTTPResponse", opened)
        resumed = have > 0 and _resumes_at(response, have)
        with part.open("ab" if resumed else "wb") as file:
            _copy(response, file, have if resumed else 0, size, progress)


def _resumes_at(response: http.client.HTTPResponse, have: int) -> bool:
    """Whether the answer is the rest; a server without ranges sends the whole with a 200."""
    content_range = response.headers.get("Content-Range", "")
    return response.status == 206 and content_range.startswith(f"bytes {have}-")


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, have: int, size: int, progress: Progress
) -> None:
    while chunk := response.read(CHUNK_BYTES):
        file.write(chunk)
        have += len(chunk)
        if have > size:
            raise http.client.HTTPException(f"it is larger than the {size} bytes expected")
        progress(have, size)
    file.flush()
    os.fsync(file.fileno())
    if have < size:
        raise http.client.HTTPException(f"it ended after {have} of {size} bytes")


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    handlers = (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=_certificates()),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    )
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _certificates() -> ssl.SSLContext:
    context = ssl.create_default_context()
    for variable in ("PIP_CERT", "REQUESTS_CA_BUNDLE"):
        bundle = os.environ.get(variable)
        if bundle and Path(bundle).is_file():
            context.load_verify_locations(cafile=bundle)
    return context


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).hostname or "the server"


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error)
