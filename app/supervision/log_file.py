"""A worker's log: a file it writes itself, capped and read by the parent.

A file, not a pipe: it survives the parent, and a parent that hangs never blocks the worker.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

TAIL_BYTES: Final = 8_192

CUT_SUFFIX: Final = ".1"
"""What is added to the name of a log for the tail of what was cut off it."""


def last_lines(path: Path, count: int) -> list[str]:
    """The last non-empty lines, oldest first; none when there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def cap(path: Path, bytes_max: int) -> bool:
    """Cut a log that has grown past ``bytes_max``, keeping its tail beside it as ``.1``.

    The worker appends, so it goes on at the new end. Returns whether anything was cut.
    """
    try:
        if path.stat().st_size <= bytes_max:
            return False
        with path.open("rb+") as file:
            file.seek(-TAIL_BYTES, os.SEEK_END)
            path.with_suffix(path.suffix + CUT_SUFFIX).write_bytes(file.read())
            file.truncate(0)
    except OSError:
        return False
    return True


def prune(directory: Path, before: float, living: Collection[str]) -> float | None:
    """Remove the logs last written before then, in Unix seconds, but for the living ones, by name.

    Returns when the oldest one that may go later was written; None when there is none.
    """
    written: list[float] = []
    with suppress(OSError):
        for path in directory.iterdir():
            if path.name.removesuffix(CUT_SUFFIX) in living:
                continue
            written_at = path.stat().st_mtime
            if written_at <= before:
                path.unlink()
            else:
                written.append(written_at)
    return min(written, default=None)
