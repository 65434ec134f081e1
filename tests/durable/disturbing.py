"""Eight streams, one thing that goes wrong at a random moment, and what must come out all the same.

The moment and its length follow from the kind and a seed, as far as the machine lets them: a number
of events after which it happens.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

from shared.requests import ChatMessage
from tests.durable.place import SLACK_S, Place, assert_counted_once
from tests.durable.streams import JobStream, follow, wait_for_events
from tests.waiting import wait_until
from worker.engine.script import Script
from worker.engine.scripted_text import Answer, ScriptedText, orders_of

STREAMS: Final = 8
STOPPED_S_MAX: Final = 1.5
"""Shorter than the silence after which a worker counts as lost."""


@dataclass(frozen=True)
class Asked:
    """One job of a load."""

    content: str
    seed: int
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def submit(self, place: Place, **fields: Any) -> str:
        return place.submit(self.content, self.seed, body=dict(self.body), **fields)


@dataclass(frozen=True)
class Said:
    """What a job comes to when nothing goes wrong."""

    tokens: list[int]
    text: str
    finish: str

    @property
    def events(self) -> int:
        """About how many events show it."""
        return len(self.tokens) // 2


@dataclass(frozen=True)
class Load:
    """Jobs, and what they come to."""

    asked: Sequence[Asked]
    said: Sequence[Said]

    def submit(self, place: Place) -> list[str]:
        return [asked.submit(place) for asked in self.asked]


def undisturbed(place: Place, asked: Sequence[Asked]) -> Load:
    """Let these run, all at once and in peace."""
    jobs = [one.submit(place) for one in asked]
    streams = [stream.finished() for stream in follow(place, jobs)]
    said = [
        Said(place.tokens(stream.job), stream.text, stream.ending["finish_reason"])
        for stream in streams
    ]
    assert all(len(place.attempts(job)) == 1 for job in jobs)
    return Load(asked, said)


def scripted(*contents: str) -> Load:
    """What the scripted engine says to these, worked out here: it needs no undisturbed run."""
    asked = [Asked(content, seed) for seed, content in enumerate(contents)]
    return Load(asked, [_answer_to(one) for one in asked])


def _answer_to(asked: Asked) -> Said:
    script = Script()
    codec = ScriptedText(script)
    prompt = codec.render_chat([ChatMessage("user", asked.content)], 0)
    answer = Answer(prompt, asked.seed, 0, orders_of(prompt, script), script.length)
    tokens = [answer.token(position) for position in range(answer.length + 1)]
    detokenizer = codec.detokenizer()
    text = "".join(map(detokenizer.push, tokens)) + detokenizer.flush()
    return Said(tokens, text, "stop")


# --- what goes wrong ---------------------------------------------------------------------------


def _worker(place: Place) -> psutil.Process | None:
    """The one worker; none if all work is done and it was killed before."""

    def settled() -> bool:
        done = not place.store.rows("SELECT 1 FROM job WHERE finalized_at IS NULL LIMIT 1")
        return done or len(place.site.workers()) == 1

    wait_until(settled, SLACK_S, "one worker, or the end of all work")
    workers = place.site.workers()
    return workers[0] if workers else None


def _worker_killed(place: Place, _chance: random.Random) -> None:
    worker = _worker(place)
    if worker is not None:
        worker.kill()


def _parent_killed(place: Place, _chance: random.Random) -> None:
    place.restart()


def _both_killed(place: Place, chance: random.Random) -> None:
    worker = _worker(place)
    if worker is None or chance.random() < 0.5:
        place.kill_parent()
    if worker is not None:
        worker.kill()
    place.restart()


def _worker_stopped(place: Place, chance: random.Random) -> None:
    worker = _worker(place)
    if worker is not None:
        worker.suspend()
        let_pass(chance.uniform(0.1, STOPPED_S_MAX))
        with suppress(psutil.NoSuchProcess):  # so slow a machine that it was given up meanwhile
            worker.resume()


def _parent_stopped(place: Place, chance: random.Random) -> None:
    place.suspend_parent()
    let_pass(chance.uniform(0.1, STOPPED_S_MAX))
    place.go_on_parent()


Deed = Callable[[Place, random.Random], None]

DEEDS: Final[Mapping[str, Deed]] = {
    "worker-killed": _worker_killed,
    "parent-killed": _parent_killed,
    "both-killed": _both_killed,
    "worker-stopped": _worker_stopped,
    "parent-stopped": _parent_stopped,
}
COMPUTES_NOTHING_AGAIN: Final = ("parent-killed", "worker-stopped", "parent-stopped")


def let_pass(seconds: float) -> None:
    """Let time pass: for what has no sign of its own."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, seconds + 1)


# --- and what must come out --------------------------------------------------------------------


def run_disturbed(place: Place, load: Load, deeds: Sequence[str], seed: int) -> None:
    """One round; ends with everything as it must be."""
    chance = random.Random(f"{deeds} {seed}")
    jobs = load.submit(place)
    streams = follow(place, jobs)
    for deed, moment in zip(deeds, moments(load, chance, len(deeds)), strict=True):
        wait_for_events(streams, moment)
        DEEDS[deed](place, chance)
    for stream in streams:
        stream.finished()
    assert_undisturbed(place, load, streams)
    if set(deeds) <= set(COMPUTES_NOTHING_AGAIN):
        assert_nothing_computed_again(place, jobs)


def run_cancelled(place: Place, load: Load, deed: str, seed: int) -> None:
    """One round in which half of the jobs are cancelled around the disturbance. Each ends once: as
    asked, or with all that it had to say."""
    chance = random.Random(f"{deed} {seed} cancelled")
    jobs = load.submit(place)
    streams = follow(place, jobs)
    doomed = chance.sample(jobs, len(jobs) // 2)
    before, during, after = moments(load, chance, 3)
    for number, moment in enumerate((before, during, after)):
        wait_for_events(streams, moment)
        if number == 1:
            DEEDS[deed](place, chance)
        for job in doomed[number::3]:
            place.cancel(job)
    for stream, said in zip(streams, load.said, strict=True):
        state = stream.finished().ending["state"]
        assert state == "completed" or (state == "cancelled" and stream.job in doomed)
        tokens = place.tokens(stream.job)
        assert said.tokens[: len(tokens)] == tokens
        assert said.text.startswith(stream.text)
        assert state == "cancelled" or tokens == said.tokens
    assert_counted_once(place, jobs)


def moments(load: Load, chance: random.Random, count: int) -> list[int]:
    """Numbers of events, in order."""
    return sorted(chance.sample(range(sum(said.events for said in load.said)), count))


def assert_undisturbed(place: Place, load: Load, streams: Sequence[JobStream]) -> None:
    """Tokens, text and one ending as in the undisturbed run, each counted once."""
    for stream, said in zip(streams, load.said, strict=True):
        assert place.tokens(stream.job) == said.tokens, stream.job
        assert stream.text == said.text, stream.job
        ending = stream.ending
        assert (ending["state"], ending["finish_reason"]) == ("completed", said.finish)
        assert ending["usage"]["completion_tokens"] == len(said.tokens)
        job = place.job(stream.job)
        assert job["events"] == stream.last + 1
        assert "".join(item["text"] for item in job["output"][0]["items"]) == said.text
    assert_counted_once(place, [stream.job for stream in streams])


def assert_nothing_computed_again(place: Place, jobs: Sequence[str]) -> None:
    """Each job had one attempt, which began at the first token."""
    for job in jobs:
        attempts = [(row["number"], row["replayed_tokens"]) for row in place.attempts(job)]
        assert attempts == [(1, 0)], job
