"""A process that may be told, while it runs, to die at a named point.

All points of ``crash_points`` are watched in every process of a site. One at a time is armed by a
file; who comes to it takes the file away and is killed by SIGKILL, there and then.
"""

import inspect
import os
import signal
from collections.abc import Callable, Sequence, Set
from functools import wraps
from pathlib import Path
from typing import Any, Final

from tests.durable.sabotage import _found, changes
from tests.reliability.crash_points import POINTS, Call, Commit, Moment, Point, Sent, Side

ARMED: Final = "armed"
HIT: Final = "hit"
COMMITTER: Final = "app.storage.committing:Committer"

Hook = Callable[..., None]


def arm(directory: Path, point: Point, count: int) -> None:
    """The next process that comes to this point for the so-manieth time dies of it."""
    (directory / HIT).unlink(missing_ok=True)
    draft = directory / "draft"
    draft.write_text(f"{point.title}\n{count}")
    draft.rename(directory / ARMED)


def in_parent(directory: str) -> None:
    """Watch the parent's points in this process; its workers watch theirs."""
    import app.supervision.processes as processes

    watched = Watched(Path(directory))
    watched.install(Side.PARENT)
    spawn = processes.spawn

    def spawn_doomed(arguments: Sequence[str], *others: Any) -> Any:
        *_, word = arguments  # what tells a worker's process from others
        return spawn(["-m", "tests.reliability.doomed_worker", directory, word], *others)

    processes.spawn = spawn_doomed


def in_worker(directory: str) -> None:
    """Watch the worker's points in this process."""
    Watched(Path(directory)).install(Side.WORKER)


class Watched:
    """The points of this process, and how often each was reached since it was armed."""

    def __init__(self, directory: Path) -> None:
        self._armed = directory / ARMED
        self._hit = directory / HIT
        self._reached: dict[str, int] = {}

    def install(self, side: Side) -> None:
        """Watch the points of this side."""
        mine = [point for point in POINTS if point.side is side]
        for point in mine:
            if isinstance(point.where, Call):
                self._call(point, point.where.name)
        if side is Side.PARENT:
            self._commits([point for point in mine if isinstance(point.where, Commit)])
            self._sends([point for point in mine if isinstance(point.where, Sent)])

    @property
    def armed(self) -> bool:
        """Whether any is: what else it costs is not paid otherwise."""
        return self._armed.exists()

    def reach(self, point: Point) -> None:
        """This process is there."""
        try:
            title, count = self._armed.read_text().split("\n")
        except FileNotFoundError:
            self._reached.clear()
            return
        if title != point.title:
            return
        self._reached[title] = self._reached.get(title, 0) + 1
        if self._reached[title] < int(count):
            return
        self._armed.rename(self._hit)
        os.kill(os.getpid(), signal.SIGKILL)

    def _reach_each(self, points: Sequence[Point], names: Set[str]) -> None:
        for point in points:
            if point.where.name in names:
                self.reach(point)

    def _call(self, point: Point, target: str) -> None:
        def reach(*_: object) -> None:
            if self.armed:
                self.reach(point)

        before = reach if point.moment is Moment.BEFORE else _nothing
        after = reach if point.moment is Moment.AFTER else _nothing
        _around(target, before, after)

    def _commits(self, points: Sequence[Point]) -> None:
        def at(moment: Moment) -> Hook:
            mine = [point for point in points if point.moment is moment]

            def look(_committer: object, operations: Sequence[Any]) -> None:
                if self.armed:
                    self._reach_each(mine, _held(operations))

            return look

        _around(f"{COMMITTER}.commit", at(Moment.BEFORE), at(Moment.AFTER))
        for work in ("_all_at_once", "_one_by_one"):
            _around(f"{COMMITTER}.{work}", _nothing, at(Moment.INSIDE))

    def _sends(self, points: Sequence[Point]) -> None:
        waiting: dict[bytes, set[str]] = {}

        def queued(_router: object, identity: bytes, messages: Sequence[object]) -> None:
            waiting.setdefault(identity, set()).update(type(m).__name__ for m in messages)

        def at(moment: Moment) -> Hook:
            mine = [point for point in points if point.moment is moment]

            def look(_router: object, identity: bytes, _messages: object) -> None:
                left = waiting.get(identity, set())
                if self.armed:
                    self._reach_each(mine, left)
                if moment is Moment.AFTER:
                    left.clear()

            return look

        _around("app.dispatch.router:Router.send", queued, _nothing)
        _around("app.dispatch.router:Router._send_now", at(Moment.BEFORE), at(Moment.AFTER))


def _held(operations: Sequence[Any]) -> set[str]:
    """What these operations do, by the names of their statements."""
    steps = [step for operation in operations for step in operation.steps]
    held = {change for step in steps for change in changes(step.statement.name)}
    if any(operation.receipts for operation in operations):
        held.add("receipt")
    return held


def _around(target: str, before: Hook, after: Hook) -> None:
    """Call these before and after every call of a function, with its arguments."""
    owner, name = _found(target)
    original = getattr(owner, name)

    @wraps(original)
    def instead(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = original(*args, **kwargs)
        after(*args)
        return result

    @wraps(original)
    async def instead_async(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = await original(*args, **kwargs)
        after(*args)
        return result

    setattr(owner, name, instead_async if inspect.iscoroutinefunction(original) else instead)


def _nothing(*_: object) -> None:
    pass
