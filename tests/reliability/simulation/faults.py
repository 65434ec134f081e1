"""What goes wrong in a simulation, each kind by name. All of it passes."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random
from typing import Final

from tests.reliability.simulation.machine import Machine
from tests.reliability.simulation.worker_process import SimWorker

Fault = Callable[[Machine, Random], None]
FORWARD_S_MAX: Final = 3_600.0
BACK_S_MAX: Final = 20.0


def _drop(machine: Machine, chance: Random) -> None:
    machine.wire.lose_next += chance.randint(1, 3)


def _repeat(machine: Machine, chance: Random) -> None:
    machine.wire.repeat_next += chance.randint(1, 5)


def _disconnect(machine: Machine, chance: Random) -> None:
    connections = machine.wire.connections()
    if connections:
        machine.wire.disconnect(chance.choice(connections), late=False)


def _reorder(machine: Machine, chance: Random) -> None:
    connections = machine.wire.connections()
    if connections:
        machine.wire.disconnect(chance.choice(connections), late=True)


def _delay(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault delay")
    machine.wire.slow_s = chance.uniform(0.05, 0.8)
    machine.world.after(chance.uniform(0.5, 3.0), lambda: setattr(machine.wire, "slow_s", 0.0))


def _clock_forward(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault clock forward")
    machine.clock.ahead += timedelta(seconds=chance.uniform(1.0, FORWARD_S_MAX))


def _clock_back(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault clock back")
    machine.clock.ahead -= timedelta(seconds=chance.uniform(1.0, BACK_S_MAX))


def _disk_slow(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault disk slow")
    machine.disk.slow_s = chance.uniform(0.02, 0.5)
    machine.world.after(chance.uniform(0.5, 3.0), lambda: setattr(machine.disk, "slow_s", 0.0))


def _disk_full(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault disk full")
    machine.disk.full = True
    machine.world.after(chance.uniform(0.1, 4.0), lambda: setattr(machine.disk, "full", False))


def _disk_busy(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault disk busy")
    machine.disk.busy += chance.randint(1, 4)


def _disk_breaks(machine: Machine, chance: Random) -> None:
    machine.disk.broken = True
    _start_again(machine, chance)


def _worker_killed(machine: Machine, chance: Random) -> None:
    for worker in _one_worker(machine, chance):
        machine.world.hit("fault worker killed")
        worker.kill()


def _worker_stopped(machine: Machine, chance: Random) -> None:
    for worker in _one_worker(machine, chance):
        machine.world.hit("fault worker stopped")
        worker.stop()
        machine.world.after(chance.uniform(0.2, 15.0), worker.go_on)


def _parent_killed(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault parent killed")
    machine.kill_parent()
    _start_again(machine, chance)


def _parent_dies(where: str) -> Fault:
    def fault(machine: Machine, chance: Random) -> None:
        machine.disk.dies = where
        _start_again(machine, chance)

    return fault


def _parent_stopped(machine: Machine, chance: Random) -> None:
    if machine.parent is not None:
        machine.world.hit("fault parent stopped")
        machine.stop_parent()
        machine.world.after(chance.uniform(0.2, 6.0), machine.go_on_parent)


def _parent_terminated(machine: Machine, chance: Random) -> None:
    parent = machine.parent
    if parent is None or not parent.up:
        return
    machine.world.hit("fault parent terminated")
    parent.spawn(parent.stop())

    def restart() -> None:
        if machine.parent is parent:
            machine.kill_parent()
        machine.start_parent()

    machine.world.after(chance.uniform(0.5, 20.0), restart)


def _both_killed(machine: Machine, chance: Random) -> None:
    machine.world.hit("fault both killed")
    machine.kill_parent()
    for worker in list(machine.workers.values()):
        worker.kill()
    _start_again(machine, chance)


def _spawn_fails(machine: Machine, chance: Random) -> None:
    machine.spawns_fail += 1
    _worker_killed(machine, chance)


def _drained(machine: Machine, chance: Random) -> None:
    parent = machine.parent
    if parent is None or not parent.up or parent.product is None:
        return
    machine.world.hit("fault drain")
    draining, mode = parent.product.draining, chance.choice(("finish", "checkpoint", "cancel"))
    wait_s = chance.uniform(0.5, 5.0)
    parent.spawn(machine.drain(draining, mode, wait_s))


def _one_worker(machine: Machine, chance: Random) -> list[SimWorker]:
    alive = list(machine.workers.values())
    return [chance.choice(alive)] if alive else []


def _start_again(machine: Machine, chance: Random) -> None:
    """A new parent, soon or when its workers have left."""
    wait_s = chance.choice((chance.uniform(0.01, 3.0), chance.uniform(3.0, 25.0)))
    machine.world.after(wait_s, machine.start_parent)


FAULTS: Final[Mapping[str, Fault]] = {
    "drop": _drop,
    "repeat": _repeat,
    "disconnect": _disconnect,
    "reorder": _reorder,
    "delay": _delay,
    "clock forward": _clock_forward,
    "clock back": _clock_back,
    "disk slow": _disk_slow,
    "disk full": _disk_full,
    "disk busy": _disk_busy,
    "disk breaks": _disk_breaks,
    "worker killed": _worker_killed,
    "worker stopped": _worker_stopped,
    "parent killed": _parent_killed,
    "parent dies before commit": _parent_dies("before commit"),
    "parent dies after commit": _parent_dies("after commit"),
    "parent stopped": _parent_stopped,
    "parent terminated": _parent_terminated,
    "both killed": _both_killed,
    "spawn fails": _spawn_fails,
    "drain": _drained,
}
CLIENTS_DO: Final = ("cancel", "client leaves")
JOBS_DO: Final = ("worker hangs", "worker crashes")


def every_kind() -> frozenset[str]:
    """What a whole campaign must have met."""
    return frozenset((*FAULTS, *CLIENTS_DO, *JOBS_DO))
