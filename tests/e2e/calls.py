"""A client that can be left at any moment: one request on a connection of its own."""

import http.client
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from tests.e2e.server import CHAT, RunningServer

TIMEOUT_S = 20.0


class Call:
    """A chat request that has been sent. Leaving its context closes the connection."""

    def __init__(
        self, server: RunningServer, content: str, *, stream: bool = True, **fields: Any
    ) -> None:
        body = json.dumps(server.body(content, stream=stream, **fields))
        self.answer_id = ""
        self._connection = http.client.HTTPConnection(*server.address, timeout=TIMEOUT_S)
        self._connection.request("POST", CHAT, body, {"content-type": "application/json"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the connection, whatever is still to come on it."""
        self._connection.close()
        if "head" in self.__dict__:
            self.head.close()

    @cached_property
    def head(self) -> http.client.HTTPResponse:
        """The answer's head, once it is there."""
        return self._connection.getresponse()

    @property
    def status(self) -> int:
        return self.head.status

    def body(self) -> dict[str, Any]:
        """The whole answer of a plain request."""
        return json.loads(self.head.read())

    def events(self) -> Iterator[dict[str, Any]]:
        """The rest of a stream, which must end with ``[DONE]`` and nothing after it."""
        while (event := self._next_event()) is not None:
            yield event
        assert not self.head.read().strip()

    def read_text(self, chars: int = 1) -> str:
        """Read until at least so much text has come."""
        text = ""
        while len(text) < chars:
            event = self._next_event()
            assert event is not None, f"the stream ended after {text!r}"
            text += text_of([event])
        return text

    def _next_event(self) -> dict[str, Any] | None:
        """The next event; None for ``[DONE]``."""
        while line := self.head.readline():
            if line.startswith(b"data: "):
                payload = line.removeprefix(b"data: ").strip()
                return None if payload == b"[DONE]" else self._noted(json.loads(payload))
        raise AssertionError("the stream ended without [DONE]")

    def _noted(self, event: dict[str, Any]) -> dict[str, Any]:
        self.answer_id = event.get("id", self.answer_id)
        return event


def text_of(events: list[dict[str, Any]]) -> str:
    """The text of a stream's events."""
    choices = [choice for event in events for choice in event.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def finish_of(events: list[dict[str, Any]]) -> str | None:
    """The finish reason of a stream's events."""
    reasons = [choice["finish_reason"] for e in events for choice in e.get("choices", [])]
    return next((reason for reason in reasons if reason), None)


def error_of(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The error that a stream ended with, if it did."""
    return events[-1].get("error") if events else None


def rest_of(calls: Sequence[Call]) -> list[list[dict[str, Any]]]:
    """All that still comes on these streams, which are read at once."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(_rest, calls))


def _rest(call: Call) -> list[dict[str, Any]]:
    return list(call.events())
