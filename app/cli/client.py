"""The server as commands see it: requests with JSON answers, and streams of events.

Only the standard library, loaded when a request is made: a command must start at once, and proxies
that the environment names are not for a server on this machine.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import click
import msgspec

from app.cli.context import BUSY, FAILED, UNREACHABLE, Failed, WrongSettings, settings_of

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

CONNECT_S: Final = 5.0
ANSWER_S: Final = 120.0
"""How long an answer may take; a cancel waits for its job, a submission for the disk."""

STREAM_SILENCE_S: Final = 60.0
"""A stream without even a keep-alive for this long is taken for lost, and asked for again."""

BUSY_STATUSES: Final = frozenset({429, 502, 503, 504})

url_option = click.option(
    "--url", envvar="MLXQ_URL", help="The server. [default: the address in the settings]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")


class Unreachable(click.ClickException):
    """No server answers there. Exit status 3."""

    exit_code = UNREACHABLE


class AnswerLost(Unreachable):
    """The server was there, and the connection broke before all of its answer had come."""


class Refused(click.ClickException):
    """The server said no. Exit status 1."""

    exit_code = FAILED

    def __init__(self, message: str, code: str | None) -> None:
        super().__init__(message)
        self.code = code


class RefusedForNow(Refused):
    """The server may say yes a little later. Exit status 4."""

    exit_code = BUSY


class Client:
    """One server. Every request has a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._parts = _parts(self.url)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of the answer.

        Raises:
            Unreachable: nobody listens there, or the answer was lost (AnswerLost).
            Refused: the server's own error.
        """
        with contextlib.closing(self._connect(ANSWER_S)) as connection, _connected(self.url):
            content = b"" if body is None else msgspec.json.encode(body)
            response = self._send(connection, method, path, query, content, headers or {})
            return _read_answer(response, self.url)

    def open_stream(self, path: str, query: Mapping[str, Any]) -> "Stream":
        """The events at a path, from when the server has said yes.

        Raises:
            Unreachable: nobody listens there, or the answer was lost.
            Refused: the server's own error.
        """
        connection = self._connect(STREAM_SILENCE_S)
        try:
            with _connected(self.url):
                response = self._send(connection, "GET", path, query, b"", {})
                if response.status != 200:
                    _read_answer(response, self.url)
            return Stream(connection, response, self.url)
        except BaseException:
            connection.close()
            raise

    def _connect(self, silence_s: float) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=CONNECT_S)
        try:
            connection.connect()
        except OSError as error:
            cure = "start one with `mlxq serve`, or name another with --url"
            text = f"no server at {self.url} ({error.strerror or error}); {cure}"
            raise Unreachable(text) from error
        connection.sock.settimeout(silence_s)
        return connection

    def _send(
        self,
        connection: "HTTPConnection",
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        content: bytes,
        headers: Mapping[str, str],
    ) -> "HTTPResponse":
        target = self._parts.path + path
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            target += "?" + urlencode(given, doseq=True)
        sent = {"Content-Type": "application/json"} if content else {}
        connection.request(method, target, content or None, {**sent, **headers})
        return connection.getresponse()


class Stream:
    """Server-sent events, one object each. Ends where the server ends it.

    Iterating raises AnswerLost when the connection breaks, and Refused for an error in the stream.
    """

    def __init__(self, connection: "HTTPConnection", response: "HTTPResponse", url: str) -> None:
        self._connection = connection
        self._response = response
        self._url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        data = b""
        while line := self._line():
            if line.startswith(b"data:"):
                data += line[5:].strip()
            elif not line.strip() and data:
                event: dict[str, Any] = msgspec.json.decode(data)
                data = b""
                if "error" in event:
                    raise _refusal(event, 500, self._url)
                yield event

    def _line(self) -> bytes:
        with _connected(self._url):
            return self._response.readline()


def client_of(context: click.Context, url: str | None) -> Client:
    """The server that a command means.

    Raises:
        WrongSettings: the settings cannot be read, or name no port.
    """
    if url is not None:
        return Client(url)
    server = settings_of(context, {}).settings.server
    if not server.port:
        raise WrongSettings("server.port is 0, any free one; name the server with --url")
    host = f"[{server.host}]" if ":" in server.host else server.host
    return Client(f"http://{host}:{server.port}")


def job_path(job: str, suffix: str = "") -> str:
    """The path of one job."""
    return f"/v1/jobs/{quote(job, safe='')}{suffix}"


def _parts(url: str) -> SplitResult:
    parts = urlsplit(url)
    with contextlib.suppress(ValueError):
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise click.UsageError(f"{url!r} is no address of a server; write http://127.0.0.1:8000")


@contextlib.contextmanager
def _connected(url: str) -> Generator[None]:
    """What breaks in here broke after the server had been reached."""
    from http.client import HTTPException

    try:
        yield
    except (OSError, HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise AnswerLost(f"the connection to {url} was lost: {reason}") from error


def _read_answer(response: "HTTPResponse", url: str) -> Any:
    content = response.read()
    try:
        answer: Any = msgspec.json.decode(content)
    except msgspec.DecodeError:
        answer = None
    if response.status >= 400:
        raise _refusal(answer, response.status, url)
    if not isinstance(answer, dict):
        raise Failed(f"{url} does not answer as mlxq does (status {response.status})")
    return answer  # pyright: ignore[reportUnknownVariableType]


def _refusal(answer: Any, status: int, url: str) -> Refused:
    kind = RefusedForNow if status in BUSY_STATUSES else Refused
    try:
        error = answer["error"]
        return kind(str(error["message"]), error.get("code"))
    except (TypeError, KeyError, AttributeError):
        return kind(f"{url} answers with status {status}", None)
