"""Following a job to its end, across any number of lost connections and restarts of the server."""

import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from app.cli.client import Client, Refused, RefusedForNow, Unreachable, job_path
from app.cli.context import FAILED

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
GIVE_UP_S: Final = 300.0
"""How long a server may be away before following it ends."""


class Patience:
    """Pauses that grow, and an end to them. A word from the server starts both anew."""

    def __init__(self, give_up_s: float) -> None:
        self._give_up_s = give_up_s
        self.reset()

    def reset(self) -> None:
        """Something was heard."""
        self._pause_s = PAUSE_FIRST_S
        self._until: float | None = None

    def wait(self) -> bool:
        """Pause; False at once when too much time has passed since the first pause."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._give_up_s
        if now + self._pause_s > self._until:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return True


class Watcher:
    """One job's events, each once and in order. ``next`` is the number of the next one."""

    def __init__(
        self, client: Client, job: str, tenant: str | None, first: int, give_up_s: float = GIVE_UP_S
    ) -> None:
        self.job = job
        self.next = first
        self._client = client
        self._tenant = tenant
        self._patience = Patience(give_up_s)

    def events(self) -> Iterator[dict[str, Any]]:
        """Until the job's end.

        Raises:
            Unreachable: the server was away for too long.
            Refused: there is no such job, or it can no longer be followed.
        """
        while True:
            before = self.next
            try:
                for event in self._stream():
                    yield event
                    if event["type"] == "ended":
                        return
                if self.next == before and (ending := self._ended_before()) is not None:
                    yield ending
                    return
            except (Unreachable, Refused) as error:
                if not _passing(error) or not self._away():
                    raise

    def _stream(self) -> Iterator[dict[str, Any]]:
        query = {"tenant": self._tenant, "starting_after": self.next - 1 if self.next else None}
        with self._client.open_stream(job_path(self.job, "/events"), query) as stream:
            self._patience.reset()
            for event in stream:
                self._patience.reset()
                self.next = event["seq"] + 1
                yield event

    def _ended_before(self) -> dict[str, Any] | None:
        """The ending of a job that has no event with so high a number, as an event."""
        job = self._client.ask("GET", job_path(self.job), query={"tenant": self._tenant})
        if job["finalized_at"] is None:
            self._away()
            return None
        told = {name: job[name] for name in ("state", "finish_reason", "usage", "failure")}
        return {"type": "ended", "seq": job["events"] - 1, **told}

    def _away(self) -> bool:
        progress("the server is away; trying again")
        return self._patience.wait()


def show(watcher: Watcher, *, as_json: bool) -> int:
    """Print a job as it happens, its text or with JSON every event; returns the exit status."""
    printed = ""
    for event in watcher.events():
        if as_json:
            click.echo(msgspec.json.encode(event))
        elif event["type"] == "text" and event["choice"] == 0:
            printed = event["text"] or printed
            click.echo(event["text"], nl=False)
        elif event["type"] == "started":
            progress(f"started, {event['prompt_tokens']} tokens in the prompt")
        if event["type"] == "ended":
            return _finish(watcher.job, event, open_line=bool(printed) and printed[-1] != "\n")
    raise AssertionError("a job's events end with `ended`")


def progress(line: str) -> None:
    """A line for a person who watches: on a terminal, and nowhere else."""
    if sys.stderr.isatty():
        click.echo(line, err=True)


def exit_status(state: str) -> int:
    """0 for a job that was completed."""
    return 0 if state == "completed" else FAILED


def why(job: dict[str, Any]) -> str:
    """How a job ended, in a line."""
    failure = job["failure"]
    return f"{job['state']}: {failure['code']}: {failure['message']}" if failure else job["state"]


def _passing(error: Unreachable | Refused) -> bool:
    return isinstance(error, Unreachable | RefusedForNow)


def _finish(job: str, event: dict[str, Any], *, open_line: bool) -> int:
    if open_line:
        click.echo()
    if event["state"] != "completed":
        click.echo(f"{job} {why(event)}", err=True)
    return exit_status(event["state"])
