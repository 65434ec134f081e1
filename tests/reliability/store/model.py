"""The rules of jobs, generations and the feed, as simple as they can be said: no SQL, no time."""

from dataclasses import dataclass, field

from app.domain.job import FINAL_STATES, JobState, StopReason

MAX_ATTEMPTS = 3


@dataclass
class Worker:
    """A generation: what it is at, and which frame came last."""

    state: str = "ready"
    seq: int = 0

    @property
    def takes_jobs(self) -> bool:
        return self.state == "ready"

    @property
    def is_heard(self) -> bool:
        return self.state not in ("lost", "gone")


@dataclass
class Job:
    """A job: ``events`` is the next event number, ``tokens`` those in the journal."""

    state: JobState = JobState.AVAILABLE
    attempt: int = 0
    worker: int | None = None
    stop: StopReason | None = None
    failures: int = 0
    accepted: bool = False
    started: bool = False
    preempting: bool = False
    events: int = 1
    tokens: int = 0
    delivered: int = 0
    chunks: int = 0
    pruned: bool = False

    @property
    def open(self) -> bool:
        return not self.pruned and self.state not in FINAL_STATES

    @property
    def running(self) -> bool:
        return self.state is JobState.RUNNING and not self.pruned

    def claim(self, attempt: int, worker: int) -> None:
        self.state, self.attempt, self.worker = JobState.RUNNING, attempt, worker
        self.accepted = self.preempting = False
        self.delivered = 0

    def let_go(self, state: JobState) -> None:
        self.state, self.worker = state, None

    def end(self, state: JobState) -> None:
        self.let_go(state)
        self.events += 1


@dataclass
class Feed:
    """Reports in order; ``acked`` is where the one consumer stands, None without it."""

    last: int = 0
    pruned: int = 0
    acked: int | None = None
    subjects: list[str] = field(default_factory=list[str])

    def report(self, subject: str) -> None:
        self.last += 1
        self.subjects.append(subject)
