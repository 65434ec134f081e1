"""Huey's side: a queue on SQLite, a task that does nothing, and a consumer.

`python -m benchmarks.queue.huey_tasks FILE WORKERS` consumes until it is killed.
"""
# Huey has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false

import sys
from pathlib import Path
from typing import Any

from huey import SqliteHuey

_tasks: Any = SqliteHuey(immediate=False, filename=":memory:", fsync=True, results=False)


@_tasks.task()
def nothing() -> None:
    """Does nothing."""


def queue(path: Path) -> Any:
    """The queue at ``path``, whose commits are synced as ours are: ``synchronous = FULL``."""
    made: Any = SqliteHuey("bench", filename=str(path), fsync=True, results=False)
    made._registry = _tasks._registry  # noqa: SLF001 - one task, wherever the file lies
    return made


if __name__ == "__main__":
    consumer = queue(Path(sys.argv[1])).create_consumer(
        workers=int(sys.argv[2]), worker_type="thread", periodic=False, initial_delay=0.001
    )
    consumer.run()
