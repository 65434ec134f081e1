"""A worker that is played by the test: it says what it is told to, when it is told to."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import TypeVar

import zmq
import zmq.asyncio

from app.catalogue.entries import ModelEntry
from app.services.launching import Launcher
from app.supervision.process import Exit, process_started
from shared.codec import decode_to_worker, encode
from shared.ids import GenerationId
from shared.limits import PROTOCOL_VERSION
from shared.messages import (
    Accepted,
    Ack,
    Credit,
    Delta,
    Event,
    Finished,
    Frame,
    Held,
    Hello,
    Ready,
    RunJob,
    Stopped,
    Text,
    ToParent,
    ToWorker,
    Welcome,
)

ROWS = 8
PATIENCE_S = 20.0

_Kind = TypeVar("_Kind", bound=ToWorker)


class PlayedWorker:
    """One generation. It greets and is ready at once; then it is up to the test."""

    def __init__(
        self, launcher: Launcher, generation: GenerationId, on_exit: Callable[[Exit], None]
    ) -> None:
        self.generation = generation
        self.heard: list[ToWorker] = []
        self.signals: list[signal.Signals] = []
        self.seq = 0
        self.last_command = 0
        self._on_exit = on_exit
        self._news = asyncio.Condition()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(launcher._endpoint)
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    @property
    def pid(self) -> int:
        return os.getpid()

    def signal(self, number: signal.Signals) -> None:
        """What the parent does to its process; it dies of it."""
        self.signals.append(number)
        self.die()

    def die(self) -> None:
        """As if killed."""
        self.close()
        self._on_exit(Exit(signal_number=signal.SIGKILL))

    def close(self) -> None:
        self._listening.cancel()
        self._socket.close(0)
        self._context.term()

    # --- hearing -------------------------------------------------------------------------------

    async def hears(self, kind: type[_Kind], count: int = 1) -> _Kind:
        """The so-manieth message of this kind, once it is there."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: len(self.all_heard(kind)) >= count)
        return self.all_heard(kind)[count - 1]

    def all_heard(self, kind: type[_Kind]) -> list[_Kind]:
        return [message for message in self.heard if isinstance(message, kind)]

    async def _listen(self) -> None:
        await self.greet()
        while True:
            part = await self._socket.recv()
            async with self._news:
                for message in decode_to_worker(part):
                    self.heard.append(message)
                    command = getattr(message, "command", 0)
                    self.last_command = max(self.last_command, command)
                    if isinstance(message, Welcome):
                        await self.say(Ready(self.generation, ROWS, 8_192, "played", self._credit))
                self._news.notify_all()

    # --- saying --------------------------------------------------------------------------------

    async def say(self, *messages: ToParent) -> None:
        await self._socket.send(encode(messages))

    async def greet(self, *held: Held) -> None:
        started = process_started(self.pid) or 0
        acknowledged = max((ack.seq for ack in self.all_heard(Ack)), default=0)
        await self.say(
            Hello(
                PROTOCOL_VERSION,
                self.generation,
                self.pid,
                started,
                first_unacked=acknowledged + 1,
                last_made=self.seq,
                held=held,
            )
        )

    async def tell(self, *events: Event) -> None:
        """The next frame."""
        self.seq += 1
        await self.say(Frame(self.generation, self.seq, self._credit, events))

    async def accept(self, run: RunJob) -> None:
        await self.tell(Accepted(run.command, run.job, run.attempt, 3, 0, "digest", 100))

    @property
    def _credit(self) -> Credit:
        return Credit(ROWS, 2**62, self.last_command)


def delta(run: RunJob, index: int, text: str) -> Delta:
    """One token that shows this text."""
    return Delta(run.job, run.attempt, 0, index, (index,), (Text(text),))


def finished(run: RunJob, tokens: int) -> Finished:
    return Finished(run.job, run.attempt, tokens, 0)


def stopped(run: RunJob, tokens: int) -> Stopped:
    return Stopped(run.job, run.attempt, "cancelled", tokens, 0)


class Cast:
    """Takes the place of ``Launcher.spawn``: every start is a played worker."""

    def __init__(self) -> None:
        self.workers: list[PlayedWorker] = []
        self._news = asyncio.Event()

    def spawn(
        self,
        launcher: Launcher,
        generation: GenerationId,
        _entry: ModelEntry,
        on_exit: Callable[[Exit], None],
    ) -> PlayedWorker:
        self.workers.append(PlayedWorker(launcher, generation, on_exit))
        self._news.set()
        return self.workers[-1]

    async def enters(self, number: int = 1) -> PlayedWorker:
        """The so-manieth worker, once it was started."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.workers) < number:
                self._news.clear()
                await self._news.wait()
        return self.workers[number - 1]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
