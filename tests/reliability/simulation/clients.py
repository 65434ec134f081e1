"""Clients of a simulation: each wants one thing, goes on after what befalls the server, and checks
what it is shown."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from app.domain.draft import IdempotencyKey, JobDraft
from app.domain.errors import JobNotFound, JobServerError, StreamInterrupted
from app.domain.events import Ended, FollowedEvent, Output
from app.domain.job import Durability, Ending, JobClass
from app.domain.numbering import shown
from app.product import Product
from app.services.following import EventFollower, Ticket
from app.storage.errors import StoreError
from shared.ids import JobId
from shared.messages import Text
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams
from tests.reliability.simulation.machine import Machine, Parent

MODEL: Final = "scripted"
POLL_S: Final = 5.0


@dataclass(frozen=True)
class Wish:
    """What a client asks for, and what may come of it beside a whole answer."""

    content: str
    seed: int
    durability: Durability
    at_s: float
    job_class: JobClass = JobClass.BACKGROUND
    keyed: bool = False
    follows: bool = True
    cancels_after_s: float | None = None
    leaves_after_s: float | None = None
    starts_in_s: float | None = None
    deadline_s: float | None = None
    attempt_timeout_s: float | None = None
    max_attempts: int = 1
    codes: frozenset[str] = frozenset()


@dataclass
class Client:
    """One wish on its way. ``shown`` is the text by choice, ``next_seq`` the number that must come
    next; ``waits`` that no parent could be asked yet, ``asks`` the one whose answer is due."""

    number: int
    wish: Wish
    machine: Machine
    job: JobId | None = None
    accepted: bool = False
    asked_to_end: bool = False
    refused: list[str] = field(default_factory=list[str])
    next_seq: int = 1
    shown: str = ""
    ending: Ending | None = None
    begun: bool = False
    waits: bool = False
    asks: Parent | None = None

    @property
    def journaled(self) -> bool:
        """Whether its job outlives a parent."""
        return self.wish.durability is not Durability.ATTACHED

    def begin(self) -> None:
        """Its time has come."""
        self.begun = True
        self._with_parent(self._submit)

    def parent_up(self, parent: Parent) -> None:
        """A new parent serves: go on where it stood."""
        if not self.begun or self.ending is not None:
            return
        if self.accepted and self.journaled and self.wish.follows:
            parent.spawn(self._follow_again(parent))
        elif not self.accepted and self.wish.keyed:
            parent.spawn(self._submit(parent))

    def _with_parent(self, deed: Callable[[Parent], Any]) -> None:
        parent = self.machine.parent
        self.waits = parent is None or not parent.up
        if parent is not None and parent.up:
            if deed == self._submit:
                self.asks = parent  # from now on, not from when its turn comes
            parent.spawn(deed(parent))
        else:
            self.machine.world.after(1.0, lambda: self._with_parent(deed))

    # --- submitting ----------------------------------------------------------------------------

    async def _submit(self, parent: Parent) -> None:
        product = _product(parent)
        self.asks = parent
        try:
            ticket = await product.submission.submit(self._draft())
        except (JobServerError, StoreError) as error:
            self.refused.append(type(error).__name__)
            self.machine.world.note("refused", self.number, type(error).__name__)
            if self.wish.keyed and parent.alive:
                self.waits = True
                self.machine.world.after(2.0, self._submit_again)
            return
        finally:
            self.asks = None
        self._accepted(ticket)
        await self._listen(product, ticket.follower)

    def _submit_again(self) -> None:
        self.waits = False
        if not self.accepted:
            self._with_parent(self._submit)

    def _accepted(self, ticket: Ticket) -> None:
        assert self.job in (None, ticket.job_id), "one key has found two jobs"
        if self.accepted:
            return
        self.accepted, self.job = True, ticket.job_id
        self.machine.world.note("accepted", self.number, ticket.job_id)
        wish, world = self.wish, self.machine.world
        if wish.cancels_after_s is not None:
            world.after(wish.cancels_after_s, lambda: self._with_parent(self._cancel))
        if wish.leaves_after_s is not None:
            world.after(wish.leaves_after_s, self._leave)

    def _draft(self) -> JobDraft:
        wish = self.wish
        request = ChatRequest((ChatMessage("user", wish.content),), SamplingParams(seed=wish.seed))
        now = self.machine.clock.now()
        wait_s = wish.starts_in_s
        key = IdempotencyKey(key=f"k{self.number}", method="POST", path="/v1/jobs", digest="d")
        return JobDraft(
            surface="native",
            model=MODEL,
            request=request,
            durability=wish.durability,
            job_class=wish.job_class,
            max_attempts=wish.max_attempts,
            deadline_s=wish.deadline_s,
            attempt_timeout_s=wish.attempt_timeout_s,
            scheduled_at=None if wait_s is None else now + timedelta(seconds=wait_s),
            tags={"client": str(self.number)},
            idempotency=key if wish.keyed else None,
        )

    # --- ending it -----------------------------------------------------------------------------

    async def _cancel(self, parent: Parent) -> None:
        if self.job is None or self.ending is not None:
            return
        self.asked_to_end = True
        self.machine.world.hit("fault cancel")
        try:
            await _product(parent).cancellation.cancel(self.job, "default")
        except (JobServerError, StoreError) as error:
            self.machine.world.note("cancel refused", self.number, type(error).__name__)

    def _leave(self) -> None:
        """Its connection is gone, as the door sees it."""
        parent = self.machine.parent
        if parent is None or not parent.up or self.job is None or self.ending is not None:
            return
        self.machine.world.hit("fault client leaves")
        self.asked_to_end = True
        job = self.job

        async def leave() -> None:
            _product(parent).cancellation.request_nowait(job)

        parent.spawn(leave())

    # --- following -----------------------------------------------------------------------------

    async def _follow_again(self, parent: Parent) -> None:
        product = _product(parent)
        assert self.job is not None
        try:
            follower = await product.following.follow(self.job, "default", self.next_seq - 1)
        except JobNotFound:
            self.machine.broken.append(f"accepted job {self.job} is not there")
            return
        await self._listen(product, follower)

    async def _listen(self, product: Product, follower: EventFollower) -> None:
        if not self.wish.follows:
            follower.close()
            return
        try:
            while self.ending is None:
                for event in await follower.take(POLL_S):
                    self._take(event)
        except StreamInterrupted:
            self.machine.world.note("interrupted", self.number)
        finally:
            follower.close()

    def _take(self, event: FollowedEvent) -> None:
        if self.ending is not None:
            return
        self._assert_committed(event)
        if isinstance(event, Output):
            self._output(event)
            return
        assert event.seq <= self.next_seq, f"{self.job}: {event.seq} after {self.next_seq - 1}"
        if event.seq == self.next_seq:
            self.next_seq += 1
            if isinstance(event, Ended):
                self.ending = event.ending
                self.machine.world.note("ended", self.number, event.ending.state, event.seq)

    def _assert_committed(self, event: FollowedEvent) -> None:
        """Nothing of a journaled job is shown that a crash could still unsay."""
        if self.journaled and self.job is not None:
            last = event.last_seq if isinstance(event, Output) else event.seq
            stored = self.machine.disk.events[self.job]
            assert last < stored, f"{self.job}: event {last} was shown, {stored} are stored"

    def _output(self, output: Output) -> None:
        seq = output.seq
        for part in output.parts:
            if not shown(part):
                continue
            assert seq <= self.next_seq, f"{self.job}: {seq} after {self.next_seq - 1}"
            if seq == self.next_seq:
                self.next_seq += 1
                self.shown += part.text if isinstance(part, Text) else ""
            seq += 1


def _product(parent: Parent) -> Product:
    assert parent.product is not None, "a parent that is up has its services"
    return parent.product


def whole(client: Client) -> bool:
    """Whether nothing more may come for this client."""
    asks = client.asks is not None and client.asks.alive
    if not client.begun or client.waits or asks:
        return False
    if client.accepted and client.wish.follows and client.journaled:
        return client.ending is not None
    return client.accepted or not client.wish.keyed
