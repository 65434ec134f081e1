"""``mlxq`` on a disk and a clock that are not kind to it.

The first argument is a JSON list of orders: those of ``tests.durable.sabotage``, and:

* ``skip MODULE:NAME N``: the first N calls of a function do nothing;
* ``small-disk DIRECTORY BYTES``: while ``DIRECTORY/full`` is there, the database in ``DIRECTORY``
  cannot grow, but by these BYTES once the ballast is gone;
* ``random-disk SEED``: now and then there is no room for one to four commits in a row;
* ``slow-disk FILE``: while ``FILE`` is there, no commit begins;
* ``small-buffers BYTES``: the system keeps so much of what a client has not read, and no more.
"""

import json
import random
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

from tests.durable.sabotage import ORDERS, _around, _found, _nothing

PAGE_BYTES: Final = 4096
POLL_S: Final = 0.005
FULL_ONCE_IN: Final = 12

_COMMIT: Final = "app.storage.committing:Committer.commit"


def _skip(target: str, count: str) -> None:
    owner, name = _found(target)
    original, left = getattr(owner, name), [int(count)]

    @wraps(original)
    def instead(*args: Any, **kwargs: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            return None
        return original(*args, **kwargs)

    setattr(owner, name, instead)


def disk_is_full() -> sqlite3.Error:
    """What SQLite says then."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def _small_disk(directory: str, size: str) -> None:
    import app.storage.database as database
    from app.storage.ballast import Ballast

    full, ballast = Path(directory, "full"), Path(directory, "ballast")
    pages = [0]  # when the disk became full

    def look(args: Sequence[Any]) -> None:
        driver = args[0]._driver
        if not full.exists():
            pages[0], limit = 0, 2**30
        else:
            ((count,),) = driver.execute("PRAGMA page_count").fetchall()
            pages[0] = pages[0] or count
            limit = pages[0] + (0 if ballast.exists() else int(size) // PAGE_BYTES)
        driver.execute(f"PRAGMA max_page_count = {limit}").fetchall()

    _around(_COMMIT, look, _nothing)
    begin, free = database.next_start, Ballast.free_bytes.fget
    assert free is not None

    def next_start(*args: Any) -> Any:
        if full.exists() and ballast.exists():
            raise disk_is_full()
        return begin(*args)

    database.next_start = next_start

    def free_bytes(kept: Ballast) -> int:
        return 0 if full.exists() else free(kept)

    Ballast.free_bytes = property(free_bytes)  # pyright: ignore[reportAttributeAccessIssue]


def _random_disk(seed: str) -> None:
    chance, left = random.Random(seed), [0]

    def look(_args: Sequence[Any]) -> None:
        if not left[0] and chance.randrange(FULL_ONCE_IN) == 0:
            left[0] = chance.randint(1, 4)
        if left[0]:
            left[0] -= 1
            raise disk_is_full()

    _around(_COMMIT, look, _nothing)


def _slow_disk(file: str) -> None:
    marker = Path(file)

    def wait(_args: Sequence[Any]) -> None:
        while marker.exists():
            time.sleep(POLL_S)

    _around(_COMMIT, wait, _nothing)


def _small_buffers(size: str) -> None:
    import app.main as main

    bind = main.bind

    def bind_narrow(*args: Any) -> socket.socket:
        listener = bind(*args)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(size))
        return listener

    main.bind = bind_narrow


UNKIND: Final[dict[str, Callable[..., None]]] = {
    **ORDERS,
    "skip": _skip,
    "small-disk": _small_disk,
    "random-disk": _random_disk,
    "slow-disk": _slow_disk,
    "small-buffers": _small_buffers,
}


if __name__ == "__main__":
    for order in json.loads(sys.argv.pop(1)):
        word, *about = order.split()
        UNKIND[word](*about)
    from app.cli.main import main

    main()
