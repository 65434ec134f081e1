"""Who may ask: requests that name a host which is ours.

A web page can make a browser send requests to 127.0.0.1 under a host name of its own (DNS
rebinding) and then read the answers as if they came from its own site. The Host header gives it
away, so it is checked on every path, also those that answer 404. There are no CORS headers either.
A page of another site can still send a POST it cannot read the answer of; browsers say where such a
request comes from, and one that comes from elsewhere changes nothing here.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from litestar import Request
from litestar.types import ASGIApp, Receive, Scope, Send

from app.domain.errors import HostNotAllowed
from app.http.errors import answer_job_error

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

_WILDCARDS: Final = frozenset({"0.0.0.0", "::", "[::]", ""})  # noqa: S104
_PORT: Final = re.compile(r":\d*$")
_SHOWN_CHARS: Final = 100
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FOREIGN: Final = (
    "The request comes from a page of another site. "
    "If that site may use this server, add its host to the setting server.allowed_hosts."
)


def host_name(value: str) -> str:
    """The host of a ``Host`` header or a setting, without its port."""
    name = value.strip().lower()
    if name.count(":") > 1 and not name.startswith("["):
        return f"[{name}]"
    return _PORT.sub("", name)


class HostCheck:
    """Answers only for the loopback names, the address listened on, and hosts from the settings."""

    def __init__(self, app: ASGIApp, listen: str, allowed: Iterable[str]) -> None:
        self._app = app
        own = () if listen in _WILDCARDS else (listen,)
        self._allowed = LOOPBACK_HOSTS | {host_name(name) for name in (*own, *allowed)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or whatever else the server hands over."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        request: Request[Any, Any, Any] = Request(scope, receive, send)
        answer = answer_job_error(request, HostNotAllowed(refusal))
        asgi: ASGIApp = answer.to_asgi_response(app=None, request=request)  # pyright: ignore[reportUnknownMemberType] - Litestar's own
        await asgi(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        if not self._ours(scope):
            return _refusal(scope)
        changes = scope["type"] == "http" and scope["method"] not in _SAFE_METHODS
        return _FOREIGN if changes and not self._from_here(scope) else None

    def _from_here(self, scope: Scope) -> bool:
        origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
        return all(host_name(origin.partition("://")[2]) in self._allowed for origin in origins)

    def _ours(self, scope: Scope) -> bool:
        # A request with two different hosts must not pass by its better one.
        hosts = _hosts(scope)
        return bool(hosts) and all(host_name(host) in self._allowed for host in hosts)


def _hosts(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]


def _refusal(scope: Scope) -> str:
    hosts = _hosts(scope)
    if not hosts:
        return "The request names no host; send a Host header."
    shown = host_name(hosts[-1])[:_SHOWN_CHARS]
    return (
        f"This server does not answer for the host '{shown}'. "
        "If it should, add it to the setting server.allowed_hosts."
    )
