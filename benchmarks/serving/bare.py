"""The worker's own loop in a process without server, link or parent: what serving is compared with.

Engine, rows, preparation threads, sampling and text are those of a worker; frames end in a list
instead of a socket. `python -m benchmarks.serving.bare` reads a `BareStart` and then one `BareRun`
per line on standard input, and answers each with one line.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import BinaryIO, Final

import msgspec

from benchmarks.serving.workload import Chat, Load, Trace
from shared.ids import CommandId, GenerationId, JobId, StoreId
from shared.launch import EngineSettings, LaunchRecord
from shared.messages import Accepted, Credit, Delta, Event, Failed, Finished, Refused, RunJob, Text
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams
from worker import log as worker_log
from worker.engine.engine import Engine, EngineInfo, RowId, RowSpec, StepResult, TextCodec
from worker.inbox import Inbox, Terminated
from worker.loading import Loader
from worker.loop import Loop
from worker.main import SWITCH_INTERVAL_S
from worker.outside import Outside
from worker.preparation import Preparation
from worker.rows import Rows
from worker.vitals import Vitals

_GENERATION: Final = GenerationId("gen_bare")
_PREPARE_TIMEOUT_S: Final = 600.0


class BareStart(msgspec.Struct, frozen=True):
    """How the engine computes, and where it finds the BLAS and compiled kernels."""

    engine: EngineSettings
    cache_dir: str
    prepare_threads: int


class BareRun(msgspec.Struct, frozen=True):
    """What to generate."""

    load: Load
    chats: list[list[Chat]]


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step of the engine: when it began and ended, rows that got a token, prompt chunks."""

    began: float
    ended: float
    tokens: int
    chunks: int


class BareResult(msgspec.Struct, frozen=True):
    """What became of every job, and each step on the way."""

    traces: list[Trace]
    steps: list[Step]


class TimedEngine:
    """An engine whose steps are timed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.steps: list[Step] = []

    def load(self, on_progress: Callable[[int, int], None]) -> EngineInfo:
        """As the engine's."""
        return self._engine.load(on_progress)

    def warm_up(self) -> None:
        """As the engine's."""
        self._engine.warm_up()

    def text(self) -> TextCodec:
        """As the engine's."""
        return self._engine.text()

    def insert(self, spec: RowSpec) -> None:
        """As the engine's."""
        self._engine.insert(spec)

    def remove(self, row: RowId) -> None:
        """As the engine's."""
        self._engine.remove(row)

    def step(self) -> StepResult:
        """As the engine's, timed."""
        began = time.perf_counter()
        result = self._engine.step()
        ended = time.perf_counter()
        self.steps.append(Step(began, ended, len(result.tokens), len(result.progress)))
        return result

    @property
    def rows(self) -> int:
        """As the engine's."""
        return self._engine.rows

    def close(self) -> None:
        """As the engine's."""
        self._engine.close()


class _Stream(msgspec.Struct):
    """What one stream has still to ask, and what became of the rest."""

    waiting: list[Chat]
    traces: list[Trace] = msgspec.field(default_factory=list[Trace])


class Desk:
    """Asks and takes the answers: the parent's part of it, and the loop's outlet.

    Answers come in the engine thread.
    """

    may_step = True

    def __init__(self, inbox: Inbox, engine: TimedEngine) -> None:
        self._inbox = inbox
        self._engine = engine
        self._jobs = 0
        self._max_tokens = 0
        self._open: dict[JobId, tuple[Trace, _Stream]] = {}
        self._all_done = threading.Event()

    def run(self, run: BareRun) -> BareResult:
        """Ask for all of it and wait."""
        self._engine.steps = []
        self._max_tokens = run.load.tokens
        self._all_done.clear()
        streams = [_Stream(list(chats)) for chats in run.chats]
        self._inbox.put([self._ask(stream) for stream in streams])
        self._all_done.wait()
        traces = [trace for stream in streams for trace in stream.traces]
        return BareResult(traces, self._engine.steps)

    def offer(self, events: Sequence[Event], credit: Credit) -> None:
        """Note what came, and ask the next question of each stream whose answer has ended."""
        del credit
        now = time.perf_counter()
        for event in events:
            match event:
                case Accepted():
                    self._open[event.job][0].prompt_tokens = event.prompt_tokens
                case Delta():
                    self._text(event, now)
                case Finished():
                    self._open[event.job][0].completion_tokens = event.completion_tokens
                    self._ended(event.job)
                case Failed() | Refused():
                    self._open[event.job][0].error = event.failure.message
                    self._ended(event.job)
                case _:
                    pass

    def ask_for_resumed(self) -> bool:
        """There is always room."""
        return False

    def _text(self, delta: Delta, now: float) -> None:
        trace = self._open[delta.job][0]
        text = "".join(part.text for part in delta.parts if isinstance(part, Text))
        if text:
            trace.events.append(now)
            trace.text += text

    def _ended(self, job: JobId) -> None:
        _, stream = self._open.pop(job)
        if stream.waiting:
            self._inbox.put([self._ask(stream)])
        elif not self._open:
            self._all_done.set()

    def _ask(self, stream: _Stream) -> RunJob:
        self._jobs += 1
        job = JobId(f"job_{self._jobs}")
        chat = stream.waiting.pop(0)
        messages = ChatMessage("system", chat.system), ChatMessage("user", chat.user)
        request = ChatRequest(messages, SamplingParams(seed=0, temperature=0.0), self._max_tokens)
        trace = Trace(sent=time.perf_counter())
        stream.traces.append(trace)
        self._open[job] = trace, stream
        return RunJob(1, StoreId("bare"), CommandId(self._jobs), job, 1, int(time.time()), request)


def main() -> int:
    """Load, say so, and answer lines until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints goes where the log goes
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=BareStart)
    worker_log.configure("warning", _GENERATION)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    inbox: Inbox = SimpleQueue()
    vitals = Vitals()
    loaded = Loader(_launch(start), inbox, lambda _: None, vitals, Outside()).load()
    engine = TimedEngine(loaded.engine)
    desk = Desk(inbox, engine)
    rows = Rows(start.engine.rows, start.engine.prefetch)
    preparation = Preparation(engine.text(), inbox, start.prepare_threads, _PREPARE_TIMEOUT_S)
    loop = Loop(engine, loaded.info, rows, inbox, desk, preparation, vitals)
    preparation.start()
    threading.Thread(target=_serve, args=(desk, inbox, answers), daemon=True).start()
    return loop.run()


def _serve(desk: Desk, inbox: Inbox, answers: BinaryIO) -> None:
    """Answer line by line; the end of the input ends the loop."""
    _answer(answers, b"{}")
    for line in sys.stdin.buffer:
        run = msgspec.json.decode(line, type=BareRun)
        _answer(answers, msgspec.json.encode(desk.run(run)))
    inbox.put([Terminated()])


def _answer(answers: BinaryIO, line: bytes) -> None:
    answers.write(line + b"\n")
    answers.flush()


def _launch(start: BareStart) -> LaunchRecord:
    return LaunchRecord(
        generation=_GENERATION,
        store=StoreId("bare"),
        epoch=1,
        model="bare",
        endpoint="",
        cache_dir=start.cache_dir,
        engine=start.engine,
    )


if __name__ == "__main__":
    sys.exit(main())
