"""What goes wrong in a server at an exact moment.

Each order is a word and what it is about:

* ``set MODULE:NAME VALUE``: another constant (JSON);
* ``die-before MODULE:NAME N``, ``die-after …``: the N-th call of a function is the last thing that
  this process does, by SIGKILL as from outside;
* ``worker-dies-before MODULE:NAME N``: the same for its workers, whoever started them;
* ``die-on-mixed-frame``: when the writer comes to a frame that ends a journaled job and holds
  output of two others;
* ``die-before-insert``, ``die-after-insert``: around the commit of the first job;
* ``die-in-drain N``: when the writer comes to its N-th commit (from 0) since a drain was asked for;
* ``no-room-for-receipts FILE``: the disk is full for them while that file is there;
* ``put-off MODULE:NAME FILE``: calls of a function, from the event loop, wait until that file is
  there;
* ``call MODULE:NAME ARGUMENTS``: whatever this function does, to begin with.
"""

import asyncio
import importlib
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import psutil

LOOK_S: Final = 0.01

MARK: Final = "SERVER_UNDER_TEST"
"""What all processes of one site have in their environment."""


def _found(target: str) -> tuple[Any, str]:
    """The module or class that holds a name, and the name in it."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    return owner, name


def _set(target: str, value: str) -> None:
    owner, name = _found(target)
    assert hasattr(owner, name), target
    setattr(owner, name, json.loads(value))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_workers() -> None:
    mine = os.environ[MARK]
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[-1:] == ["worker"] and process.environ().get(MARK) == mine:
                process.kill()


def _around(
    target: str, before: Callable[[Sequence[Any]], None], after: Callable[[], None]
) -> None:
    """Call these around every call of a function; the first with its arguments."""
    owner, name = _found(target)
    original = getattr(owner, name)

    @wraps(original)
    def instead(*args: Any, **kwargs: Any) -> Any:
        before(args)
        result = original(*args, **kwargs)
        after()
        return result

    setattr(owner, name, instead)


def _at(count: str, deed: Callable[[], None]) -> Callable[..., None]:
    """Does the deed at its so-manieth call."""
    left = [int(count)]

    def call(*_args: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            deed()

    return call


def _nothing(*_args: object) -> None:
    pass


def _die_before(target: str, count: str) -> None:
    _around(target, _at(count, _die), _nothing)


def _die_after(target: str, count: str) -> None:
    _around(target, _nothing, _at(count, _die))


def _worker_dies_before(target: str, count: str) -> None:
    _around(target, _at(count, _kill_workers), _nothing)


def changes(statement: str) -> list[str]:
    """What a statement does, by the names of its changes: some do several in one."""
    table, _, done = statement.partition(".")
    return [f"{table}.{change}" for change in done.split("+")]


_COMMIT: Final = "app.storage.committing:Committer.commit"


def _die_on_mixed_frame() -> None:
    def look(args: Sequence[Any]) -> None:
        for operation in args[1]:
            done = [
                (s.subject, change) for s in operation.steps for change in changes(s.statement.name)
            ]
            said = {subject for subject, change in done if change == "attempt.tokens"}
            ended = {subject for subject, change in done if change == "job.end"}
            if operation.name == "frame" and ended and len(said - ended) >= 2:
                _die()

    _around(_COMMIT, look, _nothing)


def _die_around_insert(*, before: bool) -> None:
    found: list[bool] = []

    def look(args: Sequence[Any]) -> None:
        found[:] = [operation.name == "insert_job" for operation in args[1]]
        if before and any(found):
            _die()

    def committed() -> None:
        if any(found):
            _die()

    _around(_COMMIT, look, committed)


def _die_in_drain(count: str) -> None:
    left: list[int] = []

    def asked(_args: Sequence[Any]) -> None:
        if not left:
            left.append(int(count))

    def look(_args: Sequence[Any]) -> None:
        if left:
            if left[0] == 0:
                _die()
            left[0] -= 1

    _around("app.services.draining:Draining.start", asked, _nothing)
    _around(_COMMIT, look, _nothing)


def _no_room_for_receipts(marker: str) -> None:
    def look(args: Sequence[Any]) -> None:
        if any(operation.receipts for operation in args[1]) and Path(marker).exists():
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    _around(_COMMIT, look, _nothing)


def _put_off(target: str, marker: str) -> None:
    owner, name = _found(target)
    original = getattr(owner, name)

    @wraps(original)
    def instead(*args: Any) -> None:
        if Path(marker).exists():
            original(*args)
        else:
            asyncio.get_running_loop().call_later(LOOK_S, instead, *args)

    setattr(owner, name, instead)


def _call(target: str, *arguments: str) -> None:
    owner, name = _found(target)
    getattr(owner, name)(*arguments)


ORDERS: Final[dict[str, Callable[..., None]]] = {
    "set": _set,
    "die-before": _die_before,
    "die-after": _die_after,
    "worker-dies-before": _worker_dies_before,
    "die-on-mixed-frame": _die_on_mixed_frame,
    "die-before-insert": partial(_die_around_insert, before=True),
    "die-after-insert": partial(_die_around_insert, before=False),
    "die-in-drain": _die_in_drain,
    "no-room-for-receipts": _no_room_for_receipts,
    "put-off": _put_off,
    "call": _call,
}


def obey(orders: Sequence[str]) -> None:
    """See to it that these happen, in this process."""
    for order in orders:
        word, *about = order.split()
        ORDERS[word](*about)
