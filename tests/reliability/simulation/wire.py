"""Connections between workers and a parent, behind the sockets that the shipped code is given.

Within one connection messages keep their order, as ZeroMQ has it. A connection that breaks loses
what is under way, in whole or from some point on; or what was under way comes late, when the next
one stands already: so messages are reordered between connections. A message may be lost alone or
come twice: the protocol promises to stand that too.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import zmq

from tests.reliability.simulation.virtual_loop import VirtualLoop
from tests.reliability.simulation.world import Act, World

DESCRIPTOR: Final = 10_000
LATENCY_S: Final = 0.000_05
RECONNECT_S: Final = 0.1


class Direction:
    """One way of a connection."""

    def __init__(self, world: World, latency_s: Callable[[], float]) -> None:
        self._world = world
        self._latency_s = latency_s
        self._arrives = 0.0
        self._under_way: deque[Act] = deque()

    def carry(self, deliver: Callable[[], object]) -> None:
        """Deliver this after what was sent before it."""
        world = self._world
        self._arrives = max(self._arrives, world.now + self._latency_s())
        while self._under_way and self._under_way[0].off:
            self._under_way.popleft()

        def arrive() -> None:
            act.off = True
            deliver()

        act = world.after(self._arrives - world.now, arrive)
        self._under_way.append(act)

    def under_way(self) -> list[Act]:
        """What was sent and has not arrived, in order."""
        return [act for act in self._under_way if not act.off]


class Dealer:
    """The worker's socket: as much of one as ``worker.link.socket`` uses."""

    def __init__(self, wire: "Wire", identity: bytes, on_news: Callable[[], object]) -> None:
        self._wire = wire
        self.identity = identity
        self.on_news = on_news
        self.inbox: deque[bytes] = deque()
        self.connected = False
        self.open = True
        self.out: Direction
        self.back: Direction

    def send(self, part: bytes, _flags: int = 0) -> None:
        if not self.connected:
            raise zmq.Again
        self._wire.to_parent(self, part)

    def recv(self, _flags: int = 0) -> bytes:
        if not self.inbox:
            raise zmq.Again
        return self.inbox.popleft()

    def take(self, part: bytes) -> None:
        """It has arrived."""
        if self.open:
            self.inbox.append(part)
            self.on_news()


class RouterSocket:
    """The parent's socket, as much of one as ``app.dispatch.router`` uses, and its context."""

    def __init__(self, wire: "Wire", loop: VirtualLoop) -> None:
        self._wire = wire
        self._loop = loop
        self.inbox: deque[list[bytes]] = deque()
        self.bound = False

    def socket(self, _kind: int) -> "RouterSocket":
        return self

    def setsockopt(self, _option: int, _value: int) -> None:
        return

    def getsockopt(self, _option: int) -> int:
        return DESCRIPTOR

    def bind(self, _endpoint: str) -> None:
        self.bound = True
        self._wire.bound(self)

    def unbind(self, _endpoint: str) -> None:
        return

    def recv_multipart(self, _flags: int = 0) -> list[bytes]:
        if not self.inbox:
            raise zmq.Again
        return self.inbox.popleft()

    def send_multipart(self, parts: tuple[bytes, bytes], _flags: int = 0) -> None:
        self._wire.to_worker(*parts)

    def take(self, identity: bytes, part: bytes) -> None:
        """It has arrived."""
        if self.bound:
            self.inbox.append([identity, part])
            self._loop.readable(DESCRIPTOR)

    def close(self) -> None:
        if self.bound:
            self.bound = False
            self._wire.unbound(self)

    def term(self) -> None:
        return


class Wire:
    """All connections of a world. ``slow_s`` is added to each message's way while it is set."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("wire")
        self.router_now: RouterSocket | None = None
        self._dealers: dict[bytes, Dealer] = {}
        self.slow_s = 0.0
        self.held: list[tuple[Dealer, bytes]] | None = None
        self.on_told: Callable[[bytes, bytes], None] = lambda _identity, _part: None
        self.lose_next = 0
        self.repeat_next = 0

    def router(self, loop: VirtualLoop) -> Any:
        """A parent's context, which makes its one socket."""
        return RouterSocket(self, loop)

    def dealer(self, identity: bytes, on_news: Callable[[], object]) -> Dealer:
        """A worker's socket; it connects as soon as it may, and again."""
        dealer = Dealer(self, identity, on_news)
        self._dealers[identity] = dealer
        self._connect_soon(dealer, 0.001)
        return dealer

    # --- what connections do -------------------------------------------------------------------

    def hold(self) -> None:
        """From now on nothing of the workers arrives, until ``release``."""
        self.held = []

    def release(self, *, lose: bool = False) -> None:
        """What was held back arrives now, where its connection still stands; or is lost."""
        held, self.held = self.held or [], None
        for dealer, part in held:
            if dealer.connected and not lose:
                self.to_parent(dealer, part)

    def to_parent(self, dealer: Dealer, part: bytes) -> None:
        if self.held is not None:
            self.held.append((dealer, part))
            return
        router = self.router_now
        if router is not None:
            self._carry(dealer.out, lambda: router.take(dealer.identity, part))

    def to_worker(self, identity: bytes, part: bytes) -> None:
        self.on_told(identity, part)
        dealer = self._dealers.get(identity)
        if dealer is None or not dealer.connected:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        self._carry(dealer.back, lambda: dealer.take(part))

    def _carry(self, way: Direction, deliver: Callable[[], object]) -> None:
        if self.lose_next:
            self.lose_next -= 1
            self._world.hit("fault drop")
            return
        way.carry(deliver)
        if self.repeat_next:
            self.repeat_next -= 1
            self._world.hit("fault repeat")
            way.carry(deliver)

    def bound(self, router: RouterSocket) -> None:
        self.router_now = router
        for dealer in list(self._dealers.values()):
            self._connect_soon(dealer, self._chance.uniform(0.0, RECONNECT_S))

    def unbound(self, router: RouterSocket) -> None:
        if self.router_now is router:
            self.router_now = None
            for dealer in list(self._dealers.values()):
                self._cut(dealer, late=False)

    # --- what befalls them ---------------------------------------------------------------------

    def disconnect(self, dealer: Dealer, *, late: bool) -> None:
        """The connection breaks and soon stands again; with ``late`` what was under way comes after
        that."""
        if dealer.connected:
            self._world.hit("fault reorder" if late else "fault disconnect")
            self._cut(dealer, late=late)
            self._connect_soon(dealer, self._chance.uniform(0.01, 4 * RECONNECT_S))

    def close(self, dealer: Dealer) -> None:
        """Its process is gone; what it sent before may still arrive."""
        dealer.open = dealer.connected = False
        self._dealers.pop(dealer.identity, None)

    def connections(self) -> list[Dealer]:
        """Those that stand."""
        return [dealer for dealer in self._dealers.values() if dealer.connected]

    def _cut(self, dealer: Dealer, *, late: bool) -> None:
        if not dealer.connected:
            return
        dealer.connected = False
        for way in (dealer.out, dealer.back):
            under_way = way.under_way()
            kept = self._chance.randint(0, len(under_way))
            for act in under_way[kept:]:
                act.cancel()
                if late:
                    self._world.after(self._chance.uniform(0.3, 1.0), act.do)

    def _connect_soon(self, dealer: Dealer, wait_s: float) -> None:
        self._world.after(wait_s, lambda: self._connect(dealer))

    def _connect(self, dealer: Dealer) -> None:
        if dealer.connected or not dealer.open or self.router_now is None:
            return
        dealer.out, dealer.back = (Direction(self._world, self._latency_s) for _ in range(2))
        dealer.connected = True
        dealer.on_news()

    def _latency_s(self) -> float:
        return LATENCY_S + self._chance.random() * (self.slow_s or LATENCY_S)
