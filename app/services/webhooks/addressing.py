"""Where a URL leads, and whether anything may be sent there."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from app.domain.addresses import Network, refusal
from app.domain.webhook_errors import UrlRefused

URL_CHARS_MAX: Final = 2_048
LOOK_UP_S: Final = 5.0
"""How long the name of a new endpoint may take to be looked up."""

CURE: Final = "; the setting webhooks.allowed_networks can allow it"

Lookup = Callable[[str, int], Awaitable[list[str]]]


class Permits:
    """The addresses of one host at a time that may be connected to."""

    def __init__(self, look_up: Lookup, allowed: Sequence[Network]) -> None:
        self._look_up = look_up
        self._allowed = allowed

    async def __call__(self, host: str, port: int) -> list[str]:
        """Those of its addresses that may be.

        Raises:
            OSError: there are none, or none that may.
        """
        found = await self._look_up(host, port)
        reasons = {address: refusal(address, self._allowed) for address in found}
        permitted = [address for address, reason in reasons.items() if reason is None]
        if not permitted:
            reason = next(filter(None, reasons.values()), f"{host} has no address")
            raise OSError(f"{reason}{CURE}")
        return permitted


async def check_url(url: str, permits: Permits) -> None:
    """Whether this may be an endpoint's.

    Raises:
        UrlRefused: saying why not.
    """
    parts = split(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(LOOK_UP_S):
            await permits(parts.hostname or "", port)
    except TimeoutError:
        text = f"Invalid 'url': '{parts.hostname}' was not found within {LOOK_UP_S:g} s."
        raise UrlRefused(text, param="url") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UrlRefused(f"Invalid 'url': {reason}.", param="url") from error


def split(url: str) -> SplitResult:
    """The parts of an endpoint's URL.

    Raises:
        UrlRefused: it is none.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        parts, sound = urlsplit(""), False
    printable = url.isascii() and url.isprintable() and " " not in url
    if not sound or not printable or len(url) > URL_CHARS_MAX:
        text = f"Invalid 'url': write https://host/path, {URL_CHARS_MAX} characters at most."
        raise UrlRefused(text, param="url")
    if parts.username is not None or parts.password is not None or parts.fragment:
        text = "Invalid 'url': it may hold no user name, no password and no fragment."
        raise UrlRefused(text, param="url")
    return parts
