"""Huey's side: a queue on SQLite and a task that does nothing."""
# Huey has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false

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
