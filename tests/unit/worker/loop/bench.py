"""A loop on a bench: an engine, an outlet and a preparation that do what the test says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeVar

import msgspec

from shared.ids import CommandId, GenerationId, JobId, StoreId
from shared.messages import Cancel, Credit, Delta, Event, Preempt, RunJob, Text
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams
from worker.engine.engine import (
    Detokenizer,
    EngineInfo,
    EngineLost,
    RowFailed,
    RowId,
    RowProgress,
    RowSpec,
    RowToken,
    StepResult,
    TextCodec,
)
from worker.inbox import Inbox, NotPrepared, Prepared, ToLoop
from worker.loop import Loop
from worker.preparation import prepare
from worker.rows import HeldJob, Rows, Stage
from worker.vitals import Vitals

EOS = 0
CONTEXT_TOKENS = 64
GENERATION = GenerationId("gen_1")

_Kind = TypeVar("_Kind", bound=Event)


class LetterDetokenizer:
    """A token is the code of its character."""

    def push(self, token: int) -> str:
        return chr(token)

    def flush(self) -> str:
        return ""


class LetterCodec:
    """The prompt is the last message, a character a token."""

    def render_chat(self, messages: Sequence[ChatMessage], created_at: int) -> list[int]:
        if messages[-1].content == "refuse":
            raise ValueError("roles must alternate")
        if messages[-1].content == "break":
            raise KeyError("secret")
        return [ord(char) for char in messages[-1].content]

    def detokenizer(self) -> Detokenizer:
        return LetterDetokenizer()


@dataclass
class FakeEngine:
    """Every row says ``says``, a letter a step, then EOS."""

    says: str = "abc"
    inserted: list[RowSpec] = field(default_factory=list[RowSpec])
    removed: list[RowId] = field(default_factory=list[RowId])
    live: dict[RowId, list[int]] = field(default_factory=dict[RowId, list[int]])
    left: dict[RowId, int] = field(default_factory=dict[RowId, int])
    failing: dict[RowId, RowFailed] = field(default_factory=dict[RowId, RowFailed])
    progress: list[RowProgress] = field(default_factory=list[RowProgress])
    lost: bool = False
    raises: int = 0
    refuses: str = ""

    def load(self, on_progress: Callable[[int, int], None]) -> EngineInfo:
        return info()

    def warm_up(self) -> None: ...

    def text(self) -> TextCodec:
        return LetterCodec()

    def insert(self, spec: RowSpec) -> None:
        if self.refuses:
            raise ValueError(self.refuses)
        self.inserted.append(spec)
        script = [*map(ord, self.says), EOS]
        self.live[spec.row] = script[len(spec.replayed) :]
        self.left[spec.row] = spec.max_tokens

    def remove(self, row: RowId) -> None:
        self.removed.append(row)
        self.live.pop(row, None)

    def step(self) -> StepResult:
        if self.lost:
            raise EngineLost("out of memory")
        if self.raises:
            self.raises -= 1
            raise RuntimeError("no reason")
        failed = [self.failing[row] for row in self.live if row in self.failing]
        for failure in failed:
            del self.live[failure.row]
        progress, self.progress = self.progress, []
        return StepResult([self._token(row) for row in list(self.live)], progress, failed)

    def _token(self, row: RowId) -> RowToken:
        token = self.live[row].pop(0)
        self.left[row] -= 1
        finish = "stop" if token == EOS else "length" if self.left[row] == 0 else None
        if finish:
            del self.live[row]
        return RowToken(row, token, finish)

    @property
    def rows(self) -> int:
        return len(self.live)

    def close(self) -> None: ...


@dataclass
class FakeOutlet:
    """Keeps the frames."""

    frames: list[tuple[Sequence[Event], Credit]] = field(
        default_factory=list[tuple[Sequence[Event], Credit]]
    )
    may_step: bool = True

    def offer(self, events: Sequence[Event], credit: Credit) -> None:
        self.frames.append((events, credit))

    def ask_for_resumed(self) -> bool:
        return not self.may_step


@dataclass
class FakePreparing:
    """Prepares when the test says so."""

    inbox: Inbox
    waiting: list[HeldJob] = field(default_factory=list[HeldJob])
    late: list[HeldJob] = field(default_factory=list[HeldJob])
    is_stuck: bool = False
    at_once: bool = True

    def submit(self, jobs: Sequence[HeldJob]) -> None:
        self.waiting.extend(jobs)
        if self.at_once:
            self.finish()

    def finish(self) -> None:
        results = [self._result(held) for held in self.waiting if held.stage is not Stage.GONE]
        self.waiting.clear()
        self.inbox.put(results)

    def _result(self, held: HeldJob) -> Prepared | NotPrepared:
        return prepare(LetterCodec(), held.run)

    def overdue(self, now: float) -> list[HeldJob]:
        return self.late

    def stuck(self, now: float) -> bool:
        return self.is_stuck

    def patience_s(self, now: float) -> float:
        return 0.0

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or self.is_stuck


def info() -> EngineInfo:
    return EngineInfo(
        context_tokens=CONTEXT_TOKENS,
        vocab_size=256,
        eos_tokens=frozenset({EOS}),
        fingerprint="fp",
        kv_bytes_per_token=1,
        arithmetic="none",
    )


class Bench:
    """The loop under test and all it touches."""

    def __init__(self, rows: int = 2, prefetch: int = 2) -> None:
        self.inbox: Inbox = SimpleQueue()
        self.engine = FakeEngine()
        self.outlet = FakeOutlet()
        self.preparing = FakePreparing(self.inbox)
        self.vitals = Vitals()
        self.rows = Rows(rows, prefetch)
        self.now = 0.0
        self.loop = Loop(
            self.engine,
            info(),
            self.rows,
            self.inbox,
            self.outlet,
            self.preparing,
            self.vitals,
            lambda: self.now,
        )

    def tell(self, *messages: ToLoop) -> None:
        self.inbox.put(messages)

    def turn(self, times: int = 1) -> None:
        """Turns that never block: an empty list stands for a wake-up."""
        for _ in range(times):
            self.inbox.put(())
            self.loop.turn()

    def does(self, *messages: ToLoop, turns: int = 12) -> list[Event]:
        """Tell these, turn, and see what was said since."""
        before = len(self.outlet.frames)
        self.tell(*messages)
        self.turn(turns)
        return [event for events, _ in self.outlet.frames[before:] for event in events]

    def said(self, kind: type[_Kind]) -> list[_Kind]:
        return [e for events, _ in self.outlet.frames for e in events if isinstance(e, kind)]

    def text(self, job: str = "job_1") -> str:
        deltas = [delta for delta in self.said(Delta) if delta.job == job]
        return "".join(p.text for delta in deltas for p in delta.parts if isinstance(p, Text))


def run_job(
    command: int, job: str = "job_1", attempt: int = 1, prompt: str = "hi", **request: object
) -> RunJob:
    chat = ChatRequest(messages=(ChatMessage("user", prompt),), sampling=SamplingParams(seed=1))
    chat = msgspec.structs.replace(chat, **request)
    return RunJob(1, StoreId("s"), CommandId(command), JobId(job), attempt, 1_700_000_000, chat)


def cancel(command: int, job: str = "job_1", attempt: int = 1) -> Cancel:
    return Cancel(1, CommandId(command), JobId(job), attempt)


def preempt(command: int, job: str = "job_1", attempt: int = 1) -> Preempt:
    return Preempt(1, CommandId(command), JobId(job), attempt)
