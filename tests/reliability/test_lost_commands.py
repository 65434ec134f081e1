"""A command that is lost while its connection stands is found, though the worker is busy."""

from shared.codec import decode_to_worker
from shared.messages import RunJob, ToWorker
from tests.reliability.simulation.playing import machine_of
from tests.reliability.simulation.scene import Scene

LONG = 600


def lose_next(scene: Scene, kind: type[ToWorker]) -> None:
    """The next message with a command of this kind does not arrive."""
    wire, told = scene.machine.wire, scene.machine.wire.on_told
    left = [1]

    def look(identity: bytes, part: bytes) -> None:
        told(identity, part)
        if left and any(isinstance(message, kind) for message in decode_to_worker(part)):
            left.clear()
            wire.lose_next += 1

    wire.on_told = look


def test_a_job_whose_command_was_lost_runs_beside_a_long_one() -> None:
    with machine_of(1, rows=2, prefetch=0) as machine:
        scene = Scene(machine)
        long = scene.asks(tokens=LONG)
        scene.until_tokens(long, 3)
        lose_next(scene, RunJob)
        short = scene.asks()
        scene.until(lambda: short.ending is not None)
        assert long.ending is None
        assert machine.world.hits["fault drop"] == 1
        scene.settle()
