"""A worker process of the simulation: the shipped ``worker.main.Worker`` on a stack of its own.

Where the engine thread would block (an empty inbox, an engine's step, the last flush) its stack
gives way to the world. The link thread's rounds and the preparation threads' work are acts.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from queue import Empty
from typing import Any, Final, NoReturn, cast

import greenlet
from typing_extensions import override

from shared.launch import EXIT_OK, EngineSettings, LaunchRecord
from tests.reliability.simulation.wire import Wire
from tests.reliability.simulation.world import Act, World
from worker.engine.engine import Engine, TextCodec
from worker.engine.scripted_engine import Hands, ScriptedEngine
from worker.inbox import Inbox, Terminated, ToLoop
from worker.launching import read_launch
from worker.link.session import ProcessFacts, WorkerSession
from worker.link.socket import Link
from worker.main import Worker
from worker.outside import Outside
from worker.preparation import Preparation
from worker.rows import HeldJob

RSS_BYTES: Final = 50_000_000
SPAWN_S: Final = 0.2
KILLED: Final = -9


class SimWorker:
    """One process. ``on_end`` is called once with its exit code, negative for a signal."""

    def __init__(
        self,
        world: World,
        wire: Wire,
        pid: int,
        launch: bytes,
        home: str,
        on_end: Callable[["SimWorker", int], None],
    ) -> None:
        self.world = world
        self.wire = wire
        self.pid = pid
        self.started = 1_000 + pid
        self.home = home
        self.alive = True
        self.stopped = False
        self.link: SimLink | None = None
        self.inbox = SimInbox(self)
        self._missed: list[Callable[[], object]] = []
        self._on_end = on_end
        self._wake: Act | None = None
        self._waits_for_news = False
        record = read_launch(BytesIO(launch))
        self._green = greenlet.greenlet(lambda: self._main(record))
        world.after(SPAWN_S, self.resume)

    # --- its main thread -----------------------------------------------------------------------

    def _main(self, record: LaunchRecord) -> None:
        outside = Outside(
            clock=lambda: self.world.now,
            inbox=lambda: cast("Inbox", self.inbox),
            facts=lambda: ProcessFacts(self.pid, self.started, lambda: RSS_BYTES),
            link=self._make_link,
            preparation=lambda codec, inbox, threads, timeout_s: SimPreparation(
                self, codec, inbox, threads, timeout_s
            ),
            scripted=self._make_engine,
        )
        self.end(Worker(record, outside).run())

    def _make_link(self, launch: LaunchRecord, session: WorkerSession, inbox: Inbox) -> "SimLink":
        self.link = SimLink(self, launch, session, inbox)
        return self.link

    def _make_engine(self, settings: EngineSettings) -> Engine:
        hands = Hands(sleep=self.sleep, hang=self._hang, die=self._die, leave=self._leave)
        return ScriptedEngine(settings, hands)

    def resume(self) -> None:
        """Go on where the main thread gave way."""
        self.act(self._switch)

    def _switch(self) -> None:
        self._wake = None
        self._green.switch()

    def block(self, wait_s: float | None, *, for_news: bool) -> None:
        """Give way until ``news``, where that matters, or until so much time has passed."""
        self._waits_for_news = for_news
        if wait_s is not None:
            self._wake = self.world.after(max(0.0, wait_s), self.resume)
        world_s = greenlet.getcurrent().parent
        assert world_s is not None, "only its own stack gives way"
        world_s.switch()

    def news(self) -> None:
        """The main thread may find something now."""
        if self._waits_for_news:
            self._waits_for_news = False
            if self._wake is not None:
                self._wake.cancel()
            self._wake = self.world.after(0.0, self.resume)

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``."""
        if seconds > 0:
            self.block(seconds, for_news=False)

    def _hang(self) -> None:
        self.world.hit("fault worker hangs")
        self.block(None, for_news=False)

    def _die(self) -> NoReturn:
        self.world.hit("fault worker crashes")
        self.end(KILLED)
        raise greenlet.GreenletExit

    def _leave(self, status: int) -> NoReturn:
        self.end(status)
        raise greenlet.GreenletExit

    # --- its life ------------------------------------------------------------------------------

    def act(self, do: Callable[[], object]) -> None:
        """Something its threads do: not while it is stopped, never after its end."""
        if self.stopped:
            self._missed.append(do)
        elif self.alive:
            do()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        self.stopped = False
        missed, self._missed = self._missed, []
        for do in missed:
            self.world.after(0.0, lambda do=do: self.act(do))

    def terminate(self) -> None:
        """SIGTERM."""
        self.act(lambda: self.inbox.put((Terminated(),)))

    def kill(self) -> None:
        """SIGKILL."""
        self.end(KILLED)

    def end(self, code: int = EXIT_OK) -> None:
        """The process is gone."""
        if not self.alive:
            return
        self.alive = False
        self.world.note("worker ends", self.pid, code)
        if self.link is not None:
            self.link.gone()
        self._on_end(self, code)
        if self._green and self._green is not greenlet.getcurrent():
            self._green.throw()


class SimInbox:
    """The engine thread's queue."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._lists: deque[Sequence[ToLoop]] = deque()

    def put(self, messages: Sequence[ToLoop]) -> None:
        self._lists.append(messages)
        self._worker.news()

    def get(self, timeout: float | None = None) -> Sequence[ToLoop]:
        if not self._lists:
            self._worker.block(timeout, for_news=True)
        return self.get_nowait()

    def get_nowait(self) -> Sequence[ToLoop]:
        if not self._lists:
            raise Empty
        return self._lists.popleft()

    def empty(self) -> bool:
        return not self._lists

    def qsize(self) -> int:
        return len(self._lists)


class _Bell:
    """A doorbell that plans a round."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self.ring = ring


class SimLink(Link):
    """The shipped link, whose rounds are acts."""

    def __init__(
        self, worker: SimWorker, launch: LaunchRecord, session: WorkerSession, inbox: Inbox
    ) -> None:
        super().__init__(launch, session, inbox, lambda: worker.world.now, worker.end)
        self._doorbell.close()
        self._doorbell = cast("Any", _Bell(self._round_soon))
        self._worker = worker
        self._identity = f"{launch.generation}.{worker.pid}".encode()
        self._dealer = worker.wire.dealer(self._identity, self._round_soon)
        self._planned: Act | None = None
        self._planned_now = False
        self._flushing = False

    @property
    def dealer(self) -> Any:
        """Its socket."""
        return self._dealer

    @override
    def start(self) -> None:
        self._round_soon()

    @override
    def close(self, timeout_s: float) -> None:
        worker = self._worker
        end = worker.world.now + timeout_s
        self._close_by = end
        self._flushing = True
        self._round_soon()
        while not self._done() and worker.world.now < end:
            worker.block(end - worker.world.now, for_news=True)

    def gone(self) -> None:
        """Its process has ended."""
        self._worker.wire.close(self._dealer)
        if self._planned is not None:
            self._planned.cancel()

    def _round_soon(self) -> None:
        if not self._planned_now and self._worker.alive:
            self._planned_now = True
            self._plan(0.0)

    def _plan(self, wait_s: float) -> None:
        if self._planned is not None:
            self._planned.cancel()
        self._planned = self._worker.world.after(wait_s, lambda: self._worker.act(self._turn))

    def _turn(self) -> None:
        self._planned_now = False
        self._exchange(self._dealer, readable=bool(self._dealer.inbox))  # type: ignore[arg-type]
        if self._flushing and self._done():
            self._worker.news()
        if self._worker.alive and not self._planned_now:
            self._plan(self._patience_ms() / 1000)


class SimPreparation(Preparation):
    """The shipped preparation, whose threads' work is an act each."""

    def __init__(
        self, worker: SimWorker, codec: TextCodec, inbox: Inbox, threads: int, timeout_s: float
    ) -> None:
        super().__init__(codec, inbox, threads, timeout_s, lambda: worker.world.now)
        self._worker = worker
        self._chance = worker.world.chance(f"preparation {worker.pid}")

    @override
    def start(self) -> None:
        return

    @override
    def submit(self, jobs: Sequence[HeldJob]) -> None:
        for n, held in enumerate(jobs):
            desk = self._desks[n % len(self._desks)]
            wait_s = self._chance.uniform(0.0, 0.004)
            work = partial(self._work_off, desk, [held])
            self._worker.world.after(wait_s, partial(self._worker.act, work))
