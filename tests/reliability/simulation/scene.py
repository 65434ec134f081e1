"""One job at one moment, on a machine where nothing goes wrong but what the scene says."""

from collections.abc import Callable
from typing import Any, Final

from app.domain.job import Durability, JobClass
from app.product import Product
from app.services.ledger import LiveJob
from shared.codec import decode_to_parent
from shared.messages import Event, Frame
from tests.reliability.simulation import oracle
from tests.reliability.simulation.clients import Client, Wish, whole
from tests.reliability.simulation.machine import Machine
from tests.reliability.simulation.worker_process import SimWorker

PATIENCE_S: Final = 600.0
TOKENS: Final = 20


class Scene:
    """Drives the machine to a moment, and from there to the end."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.world = machine.world
        self.chance = machine.world.chance("scene")
        self.clients: list[Client] = []
        machine.start_parent()
        self.until(lambda: machine.parent is not None and machine.parent.up)

    # --- what there is -------------------------------------------------------------------------

    @property
    def product(self) -> Product:
        assert self.machine.parent is not None
        assert self.machine.parent.product is not None
        return self.machine.parent.product

    @property
    def worker(self) -> SimWorker:
        (worker,) = self.machine.workers.values()
        return worker

    def live(self, client: Client) -> LiveJob | None:
        """The client's job, while it is open."""
        return self.product.ledger.get(client.job) if client.job is not None else None

    # --- what is done --------------------------------------------------------------------------

    def asks(self, job_class: JobClass = JobClass.BACKGROUND, tokens: int = TOKENS) -> Client:
        """A client submits a durable job and follows it."""
        number = len(self.clients)
        wish = Wish(f"job {number} [[tokens={tokens}]]", number, Durability.DURABLE, 0.0, job_class)
        client = Client(number, wish, self.machine)
        self.clients.append(client)
        self.machine.on_up.append(client.parent_up)
        client.begin()
        self.until(lambda: client.accepted)
        return client

    def until(self, true: Callable[[], bool]) -> None:
        """Go on until this is so."""
        assert self.world.run(true, PATIENCE_S), "the scene does not come to its moment"

    def until_tokens(self, client: Client, count: int) -> None:
        """Go on until so many tokens of the job were taken in."""

        def said() -> bool:
            live = self.live(client)
            return live is None or live.output.completion_tokens >= count

        self.until(said)

    def until_held(self, kind: type[Event]) -> None:
        """Go on until the worker has said this, which is held back."""

        def said() -> bool:
            held = self.machine.wire.held or []
            return any(
                isinstance(event, kind)
                for _, part in held
                for message in decode_to_parent(part)
                if isinstance(message, Frame)
                for event in message.events
            )

        self.until(said)

    def commits(self, name: str) -> None:
        """Go on until an operation of this name is committed."""
        seen = self.machine.disk.committed[name]
        self.until(lambda: self.machine.disk.committed[name] > seen)

    def do(self, deed: Any) -> None:
        """Do this in the parent."""
        assert self.machine.parent is not None
        self.machine.parent.spawn(deed)

    def cancel(self, client: Client) -> None:
        """The client asks for the end of its job, and the cancel is committed."""
        assert self.machine.parent is not None
        self.do(client._cancel(self.machine.parent))

    def restart(self) -> None:
        """The parent dies, and another serves."""
        self.machine.kill_parent()
        self.machine.start_parent()
        self.until(lambda: self.machine.parent is not None and self.machine.parent.up)

    def settle(self) -> None:
        """To the end; then everything must be in order."""
        self.machine.wire.release()
        self.machine.start_parent()
        self.until(lambda: all(map(whole, self.clients)) and self._quiet())
        oracle.assert_in_order(self.machine.store, self.clients)

    def _quiet(self) -> bool:
        parent = self.machine.parent
        return parent is not None and parent.up and len(self.product.ledger) == 0
