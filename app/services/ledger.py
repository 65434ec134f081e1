"""The open jobs, in memory: one object per job that has not ended.

The fields of a ``LiveJob`` are its *pending* view: they move when the operation that will make them
true is handed to the writer, in the same order, so that the next decision starts from them. What
followers see moves after the commit. The store checks every pending value again in its WHERE.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from app.domain.events import FollowedEvent
from app.domain.job import Durability, JobState, NewJob, StopReason, Usage
from app.domain.output import JobOutput
from app.domain.poison import Record
from app.streams.broadcast import Channel
from shared.ids import CommandId, GenerationId, JobId
from shared.requests import JobRequest

WAITING_BYTES_KEPT: Final = 64 * 1024 * 1024
"""Up to here durable jobs that wait keep their requests in memory, though they are on disk."""


class LiveJob(msgspec.Struct, eq=False):
    """One open job.

    Of the job: ``id``, ``attached`` (it lives only as long as its connection and this parent) and
    ``journaled`` (its output is on disk before it is shown) follow from ``new``. ``inserted`` says
    that its row is committed; ``request`` is None when it is only on disk, or gone (attached, of an
    earlier parent); ``loaded`` is False when ``output`` and the numbers must be read from the
    journal before the next attempt. ``shown_start`` says that followers saw ``Started``;
    ``held_back`` is output that must not be shown before it.

    Of the current attempt: ``claimed``, ``stop_command`` and ``preempt_command`` are set once the
    claim, the cancel, the pre-emption are committed, ``preempting`` when the last is asked for,
    ``giving_way`` when that is for a higher class and counts, ``timed_out`` when it took too long,
    ``sent`` once ``RunJob`` has left, ``accepted`` when its answer was folded.

    ``snoozes`` are tries in a row that a worker refused for now.

    Of its place among others: ``since`` is when it began to wait (monotonic seconds), ``cost`` what
    it is expected to take in tokens, ``charged`` that of the current attempt to its tenant,
    ``attempt_prompt`` the prompt tokens that the attempt is charged; ``record`` is what it did to
    its workers. ``awaits`` are jobs that must end before it is queued, ``due`` says that its own
    time has come meanwhile; ``followed`` that jobs may wait for this one in turn.
    """

    new: NewJob
    request: JobRequest | None
    request_bytes: int = 0
    state: JobState = JobState.AVAILABLE
    inserted: bool = False
    stop: StopReason | None = None
    failures: int = 0
    losses: int = 0
    preemptions: int = 0
    snoozes: int = 0
    record: Record = msgspec.field(default_factory=Record)
    awaits: frozenset[JobId] = frozenset()
    due: bool = False
    followed: bool = True
    since: float | None = None
    cost: int = 1
    charged: int = 0
    started_at: datetime | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    prompt_digest: str | None = None
    fingerprint: str | None = None
    output: JobOutput = msgspec.field(default_factory=JobOutput)
    loaded: bool = True
    next_seq: int = 1
    next_chunk: int = 0
    shown_start: bool = False
    held_back: list[FollowedEvent] = []
    channel: Channel = msgspec.field(default_factory=Channel)

    attempt: int = 0
    generation: GenerationId | None = None
    run_command: CommandId | None = None
    claimed: bool = False
    sent: bool = False
    accepted: bool = False
    stop_command: CommandId | None = None
    preempting: bool = False
    giving_way: bool = False
    preempt_command: CommandId | None = None
    attempt_prompt: int = 0
    timed_out: bool = False

    id: JobId = JobId("")
    attached: bool = False
    journaled: bool = False

    def __post_init__(self) -> None:
        self.id = self.new.id
        self.attached = self.new.durability is Durability.ATTACHED
        self.journaled = not self.attached

    @property
    def usage(self) -> Usage:
        """Tokens so far, over all attempts."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.output.completion_tokens,
            reasoning_tokens=self.reasoning_tokens,
        )

    @property
    def attempt_served(self) -> int:
        """Tokens that the attempt has had, of the prompt if it was the first to compute it."""
        return self.attempt_prompt + self.record.tokens

    def take_seq(self, count: int = 1) -> int:
        """The next event number, of ``count`` that are taken."""
        first = self.next_seq
        self.next_seq += count
        return first

    def begin_attempt(self, generation: GenerationId, command: CommandId) -> None:
        """The next attempt belongs to this generation."""
        self.attempt += 1
        self.generation = generation
        self.run_command = command
        self.record.begin_attempt()
        self.attempt_prompt = 0
        self._new_attempt()

    def let_go(self, state: JobState) -> None:
        """No worker holds the job any more; it goes on later."""
        self.state = state
        self.generation = None
        self.run_command = None
        self._new_attempt()

    def _new_attempt(self) -> None:
        self.claimed = self.sent = self.accepted = self.timed_out = False
        self.preempting = self.giving_way = False
        self.stop_command = self.preempt_command = None


class Ledger:
    """All open jobs by id, and what their requests take in memory."""

    __slots__ = ("_jobs", "request_bytes")

    def __init__(self) -> None:
        self._jobs: dict[JobId, LiveJob] = {}
        self.request_bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(list(self._jobs.values()))

    def add(self, live: LiveJob) -> None:
        """A job was submitted or found at the start."""
        self._jobs[live.id] = live
        self.request_bytes += live.request_bytes

    def get(self, job: JobId) -> LiveJob | None:
        """The open job with this id, if there is one."""
        return self._jobs.get(job)

    def forget_request(self, live: LiveJob) -> None:
        """The request is on disk and not needed for now: kept only while there is much room."""
        if self.request_bytes > WAITING_BYTES_KEPT:
            self.drop_request(live)

    def drop_request(self, live: LiveJob) -> None:
        """The request is on disk, and not needed for long."""
        if live.request is not None and live.journaled:
            live.request = None
            self.request_bytes -= live.request_bytes
            live.request_bytes = 0

    def remember_request(self, live: LiveJob, request: JobRequest, size: int) -> None:
        """The request was read from disk."""
        if live.request is None:
            live.request = request
            live.request_bytes = size
            self.request_bytes += size

    def remove(self, live: LiveJob) -> None:
        """The job's ending is committed."""
        if self._jobs.pop(live.id, None) is not None:
            self.request_bytes -= live.request_bytes
