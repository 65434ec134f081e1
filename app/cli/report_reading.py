"""Reading the feed of reports: a consumer's or anybody's, to its end or for as long as it takes."""

import shlex
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from app.cli.client import Client, Refused, RefusedForNow, Unreachable
from app.cli.context import Failed
from app.cli.watching import Patience, progress

REPORTS: Final = "/v1/reports"
CONSUMERS: Final = "/v1/consumers"
PAGE: Final = 100

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C reaches the command by itself: the terminal sends it to both."""

ReportDict = dict[str, Any]


class Reader:
    """Reports in order, each once. ``selection`` is the query that says which; ``consumes`` whether
    it names a consumer, whose place the server keeps."""

    def __init__(
        self, client: Client, selection: dict[str, Any], after: str | None, give_up_s: float
    ) -> None:
        self._client = client
        self._selection = selection
        self.consumes = "consumer" in selection
        self._after = after
        self._patience = Patience(give_up_s)
        self._reached = False
        self.more = True
        """Whether there is more behind the last page."""

    def pages(self) -> Iterator[tuple[list[ReportDict], str]]:
        """What there is by now, a page at a time, each with the place behind it."""
        after = self._after
        while self.more:
            query = {**self._selection, "limit": PAGE, "after": after}
            answer = self._client.ask("GET", REPORTS, query=query)
            self.more, place = answer["has_more"], _place(answer["next"])
            yield answer["data"], place
            after = None if self.consumes else place

    def follow(self) -> Iterator[ReportDict]:
        """What there is and what comes, over any number of lost connections.

        Raises:
            Unreachable: there was no server to begin with, or it was away for too long.
            Refused: this cannot be followed.
        """
        while True:
            try:
                yield from self._stream()
            except (Unreachable, Refused) as error:
                self._bear(error)

    def _stream(self) -> Iterator[ReportDict]:
        query = {**self._selection, "after": self._after}
        with self._client.open_stream(f"{REPORTS}/stream", query) as stream:
            self._reached = True
            self._patience.reset()
            for report in stream:
                self._patience.reset()
                self._after = _place(report)
                yield report

    def _bear(self, error: Unreachable | Refused) -> None:
        """Wait a little, if that may help."""
        code = error.code if isinstance(error, Refused) else None
        if code == "feed_epoch_changed" and self.consumes and self._after is not None:
            self._after = None  # a restored store: the place that it keeps is right
            return
        passing = isinstance(error, Unreachable | RefusedForNow) or code == "stream_interrupted"
        if not self._reached or not passing:
            raise error
        progress("the server is away; trying again")
        if not self._patience.wait():
            raise error


class Acknowledging:
    """Moves a consumer behind what is done, from where it stood and not from anywhere else."""

    def __init__(self, client: Client, consumer: str, tenant: str | None, give_up_s: float) -> None:
        self._client = client
        self._consumer = consumer
        self._tenant = tenant
        self._give_up_s = give_up_s
        self._position: dict[str, Any] = client.ask(
            "GET", f"{CONSUMERS}/{consumer}", query={"tenant": tenant}
        )["position"]

    def through(self, place: str) -> None:
        """Everything up to here is done. An answer that is lost is asked for again: no harm.

        Raises:
            Refused: the consumer stands elsewhere: somebody else reads as the same.
        """
        epoch, _, seq = place.rpartition(":")
        through = {"epoch": epoch, "seq": int(seq)}
        if through == self._position:
            return
        body = {"consumer": self._consumer, "through": through}
        if epoch == self._position["epoch"]:
            body["from"] = self._position
        patience = Patience(self._give_up_s)
        while True:
            try:
                query = {"tenant": self._tenant}
                answer = self._client.ask("POST", f"{REPORTS}/ack", body, query=query)
            except (Unreachable, RefusedForNow):
                if not patience.wait():
                    raise
            else:
                self._position = answer["position"]
                return


def execute(command: str, report: ReportDict) -> None:
    """Run a command with the report as JSON on its standard input. Whoever asks this process to end
    asks the command: it must not go on where its end is seen by nobody.

    Raises:
        Failed: it could not be started, or did not exit with 0.
    """
    try:
        process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE)
    except (OSError, ValueError) as error:
        raise Failed(f"{command!r} cannot be run: {error}") from error
    with _passed_on(process):
        process.communicate(msgspec.json.encode(report) + b"\n")
    if process.returncode:
        place = _place(report)
        raise Failed(
            f"{command!r} ended with {process.returncode} for report {report['id']} at {place}; "
            "it is not acknowledged"
        )


@contextmanager
def _passed_on(process: "subprocess.Popen[bytes]") -> Generator[None]:
    """Signals that would end this process are the command's while it runs; afterwards they do what
    they did before."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    came: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        came.append(number)
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def create(client: Client, name: str, start: str, selection: dict[str, Any]) -> None:
    """Make the consumer, unless it is there.

    Raises:
        Refused: one of this name reads other reports.
    """
    given = {name: value for name, value in selection.items() if value not in (None, [], {}, ())}
    client.ask("POST", CONSUMERS, {"name": name, "from": start, **given})


def _place(cursor: dict[str, Any]) -> str:
    return f"{cursor['epoch']}:{cursor['seq']}"
