"""Drains: closing dispatch, settling what is in flight, and proving that the sum is right.

While a drain's flag is up, attached work is refused and nothing is dispatched; durable work is
accepted and waits. What is in flight at its start is settled by mode:

* ``finish``: running jobs, and attached ones that were admitted, run to their end;
* ``checkpoint``: stored and durable rows give way and go on later, attached ones finish;
* ``cancel``: everything in flight is cancelled.

What is left when ``timeout_s`` has passed is cancelled (attached) or checkpointed. The proof is
``finished + given back + cancelled = in flight``. The flag stays until ``resume``; a start of the
server clears it. SIGTERM is a drain of its own that joins one which runs, and has it wait no longer
than its own grace.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec
import structlog

from app.domain.errors import InvalidRequest, ServerOverloaded, StorageFull
from app.domain.job import Ending, JobState, StopReason
from app.domain.view import DrainView
from app.services.cancellation import Cancellation
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.ledger import Ledger, LiveJob
from app.services.preemption import Preemption
from app.services.relay import Relay
from app.services.returns import Returns
from app.services.tasks import Tasks
from app.storage.drains import drain_progress, end_drain, insert_drain
from app.storage.endings import GiveBack
from app.storage.errors import StoreFull
from app.storage.writer import Writer
from shared.failures import Failure
from shared.ids import IdMint, JobId

Mode = Literal["finish", "checkpoint", "cancel"]

SETTLE_S = 15.0
"""How long jobs may take to stop once the time is up; the escalation of cancels is shorter."""

DRAINING = Failure(code="draining", message="The server is draining; try again a little later.")

_log = structlog.get_logger("draining")


@dataclass(slots=True)
class _Drain:
    """One drain: which jobs were in flight and are not settled, and what became of the others."""

    id: str
    mode: Mode
    timeout_s: float
    started_at: datetime
    in_flight: int = 0
    open: dict[JobId, LiveJob] = field(default_factory=dict[JobId, LiveJob])
    finished: int = 0
    given_back: int = 0
    cancelled: int = 0
    state: str = "running"
    reason: str | None = None
    ended_at: datetime | None = None
    keep_attached: bool = False
    until: float = 0.0
    ending: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def hurry(self, timeout_s: float) -> None:
        """What is left is not waited for any longer than this."""
        self.until = min(self.until, asyncio.get_running_loop().time() + timeout_s)
        self.changed.set()

    def view(self) -> DrainView:
        return DrainView(
            id=self.id,
            mode=self.mode,
            scope="server",
            state=self.state,
            started_at=self.started_at,
            ended_at=self.ended_at,
            timeout_s=self.timeout_s,
            in_flight=self.in_flight,
            finished=self.finished,
            given_back=self.given_back,
            cancelled=self.cancelled,
            reason=self.reason,
        )


class Draining:
    """Runs one drain at a time; its flag closes dispatch."""

    def __init__(
        self,
        ledger: Ledger,
        relay: Relay,
        cancellation: Cancellation,
        preemption: Preemption,
        endings: Endings,
        returns: Returns,
        writer: Writer,
        clock: Clock,
        mint: IdMint,
        tasks: Tasks,
    ) -> None:
        self._ledger = ledger
        self._relay = relay
        self._cancellation = cancellation
        self._preemption = preemption
        self._endings = endings
        self._writer = writer
        self._clock = clock
        self._mint = mint
        self._tasks = tasks
        self._drain: _Drain | None = None
        self._before: DrainView | None = None
        endings.on_ended.append(self._ended)
        returns.on_returned.append(self._returned)

    @property
    def draining(self) -> bool:
        """Whether dispatch is closed."""
        return self._relay.paused

    def status(self) -> DrainView | None:
        """The latest drain, this parent's or an earlier one's."""
        return self._drain.view() if self._drain is not None else self._before

    def remember(self, before: DrainView | None) -> None:
        """The latest drain of an earlier parent."""
        self._before = before

    async def start(
        self, mode: Mode, timeout_s: float, *, keep_attached: bool = False
    ) -> DrainView:
        """Begin a drain; a running one is joined when its mode is the same.

        With ``keep_attached`` attached work that was admitted runs on in every mode; that is how
        the server stops, recorded or not.

        Raises:
            InvalidRequest: a drain of another mode is running.
            StorageFull, ServerOverloaded: it cannot be recorded; nothing is drained.
        """
        drain = self._drain
        if drain is not None and drain.state == "running":
            if drain.mode != mode and not keep_attached:
                raise InvalidRequest(
                    f"A drain of mode '{drain.mode}' is running; wait for it or resume first.",
                    param="mode",
                )
            if keep_attached:
                drain.hurry(timeout_s)
            return drain.view()
        before = self._drain, self._relay.paused
        drain = self._begin(mode, timeout_s)
        drain.keep_attached = keep_attached or mode == "finish"
        try:
            await self._writer.submit(insert_drain(drain.view()))
        except (StoreFull, ServerOverloaded) as error:
            if not keep_attached:
                self._take_back(*before)
                raise (StorageFull() if isinstance(error, StoreFull) else error) from error
        self._tasks.spawn(self._run(drain), f"drain {drain.id}")
        return drain.view()

    def _take_back(self, drain: _Drain | None, paused: bool) -> None:  # noqa: FBT001 - as it was
        """The drain that was about to begin does not."""
        self._drain = drain
        if not paused:
            self._relay.resume()

    async def resume(self) -> None:
        """Open dispatch again; a drain that still runs ends ``cancelled``."""
        drain = self._drain
        if drain is not None and drain.state == "running":
            await self._end(drain, "cancelled", "resumed")
        self._relay.resume()

    async def finish(self, drain_view: DrainView) -> DrainView:
        """Wait until this drain has ended."""
        drain = self._drain
        if drain is not None and drain.id == drain_view.id:
            await drain.done.wait()
            return drain.view()
        return drain_view

    def _begin(self, mode: Mode, timeout_s: float) -> _Drain:
        self._relay.pause()
        drain = _Drain(self._mint.drain(), mode, timeout_s, self._clock.now())
        drain.until = asyncio.get_running_loop().time() + timeout_s
        for live in self._ledger:
            if live.state is JobState.RUNNING or (live.attached and not live.state.final):
                drain.open[live.id] = live
        drain.in_flight = len(drain.open)
        self._drain = drain
        _log.info("drain_started", drain=drain.id, mode=mode, in_flight=drain.in_flight)
        return drain

    async def _run(self, drain: _Drain) -> None:
        self._settle_by_mode(drain)
        if not await self._settled(drain):
            for live in list(drain.open.values()):
                if live.attached:
                    self._cancellation.request_nowait(live.id, StopReason.PARENT_LOST)
                else:
                    self._preemption.request(live)
            drain.until = asyncio.get_running_loop().time() + SETTLE_S
            if not await self._settled(drain):
                await self._end(drain, "failed", "timeout")
                return
        await self._end(drain, "completed", None)

    def _settle_by_mode(self, drain: _Drain) -> None:
        for live in list(drain.open.values()):
            if live.state is JobState.RUNNING:
                if drain.mode == "cancel":
                    self._cancellation.request_nowait(live.id)
                elif drain.mode == "checkpoint" and not live.attached:
                    self._preemption.request(live)
            elif not drain.keep_attached and self._relay.withdraw(live):
                self._endings.end_waiting(live, JobState.FAILED, DRAINING)
        # Attached work that goes on does so over its worker's death, too.
        self._relay.let_through({live.id for live in drain.open.values() if live.attached})

    async def _settled(self, drain: _Drain) -> bool:
        """Wait for what is in flight until ``drain.until``, which may come nearer meanwhile."""
        loop = asyncio.get_running_loop()
        while drain.open and not drain.ending and (left_s := drain.until - loop.time()) > 0:
            drain.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await drain.changed.wait()
        return not drain.open

    def _ended(self, live: LiveJob, ending: Ending) -> None:
        drain = self._drain
        if drain is None or drain.ending or drain.open.pop(live.id, None) is None:
            return
        refused = ending.failure == DRAINING
        if refused or (ending.state is not JobState.COMPLETED and live.stop is not None):
            drain.cancelled += 1
        else:
            drain.finished += 1
        self._progress(drain)

    def _returned(self, live: LiveJob, _back: GiveBack) -> None:
        drain = self._drain
        if drain is None or drain.ending or live.attached:
            return
        if drain.open.pop(live.id, None) is None:
            return
        drain.given_back += 1
        self._progress(drain)

    def _progress(self, drain: _Drain) -> None:
        drain.changed.set()
        if drain.open:
            self._writer.submit(drain_progress(drain.view()))

    async def _end(self, drain: _Drain, state: str, reason: str | None) -> None:
        """End it, once; nobody is told before that is committed."""
        if drain.ending:
            return
        drain.ending = True
        drain.changed.set()
        ended_at = self._clock.now()
        view = msgspec.structs.replace(drain.view(), state=state, reason=reason, ended_at=ended_at)
        try:
            await self._writer.submit(end_drain(view))
        finally:
            drain.state, drain.reason, drain.ended_at = state, reason, ended_at
            drain.done.set()
        _log.info("drain_ended", drain=drain.id, state=state, reason=reason)
