"""The open jobs, in memory: one object per job that has not ended.

The fields of a ``LiveJob`` are its *pending* view: they move when the operation that will make them
true is handed to the writer, in the same order, so that the next decision starts from them. What
followers see moves after the commit. The store checks every pending value again in its WHERE.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from app.domain.errors import JobNotFound
from app.domain.events import FollowedEvent
from app.domain.job import JobState, NewJob, StopReason, Usage
from app.streams.broadcast import Channel
from shared.ids import CommandId, GenerationId, JobId
from shared.requests import JobRequest


@dataclass(slots=True, eq=False)
class LiveJob:
    """One open job.

    ``claimed`` and ``stop_command`` are set once the claim and the cancel command are committed.
    ``tokens`` holds the completion's token ids per choice; ``held_back`` the output that must not
    be shown before ``Started`` is. ``request_bytes`` is what the request takes in memory.
    """

    new: NewJob
    request: JobRequest
    request_bytes: int
    state: JobState = JobState.AVAILABLE
    attempt: int = 0
    generation: GenerationId | None = None
    run_command: CommandId | None = None
    claimed: bool = False
    stop_command: CommandId | None = None
    stop: StopReason | None = None
    accepted: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str | None = None
    tokens: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    next_seq: int = 1
    shown_start: bool = False
    held_back: list[FollowedEvent] = field(default_factory=list[FollowedEvent])
    channel: Channel = field(default_factory=Channel)

    @property
    def id(self) -> JobId:
        """The job's id."""
        return self.new.id

    @property
    def usage(self) -> Usage:
        """Tokens so far, over all attempts."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=sum(map(len, self.tokens.values())),
            reasoning_tokens=self.reasoning_tokens,
        )

    def take_seq(self, count: int = 1) -> int:
        """The next event number, of ``count`` that are taken."""
        first = self.next_seq
        self.next_seq += count
        return first


class Ledger:
    """All open jobs by id."""

    __slots__ = ("_jobs", "request_bytes")

    def __init__(self) -> None:
        self._jobs: dict[JobId, LiveJob] = {}
        self.request_bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(list(self._jobs.values()))

    def add(self, live: LiveJob) -> None:
        """A job was submitted."""
        self._jobs[live.id] = live
        self.request_bytes += live.request_bytes

    def get(self, job: JobId) -> LiveJob | None:
        """The open job with this id, if there is one."""
        return self._jobs.get(job)

    def need(self, job: JobId) -> LiveJob:
        """The open job with this id.

        Raises:
            JobNotFound: when there is none.
        """
        live = self._jobs.get(job)
        if live is None:
            raise JobNotFound
        return live

    def remove(self, live: LiveJob) -> None:
        """The job's ending is committed."""
        if self._jobs.pop(live.id, None) is not None:
            self.request_bytes -= live.request_bytes
