"""How a long command tells its progress: a bar on a terminal, only its lines elsewhere.

All of it goes to standard error, so that standard output holds nothing but the result.
"""

import sys
from typing import Protocol, Self

import click


class Told(Protocol):
    """A reporter (see app.catalogue.pull.Reporter) that lives for one `with` block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def say(self, line: str) -> None: ...
    def progress(self, done: int, total: int) -> None: ...


def reporter() -> Told:
    """The bar when standard error is a terminal, else plain lines."""
    return _Bar() if sys.stderr.isatty() else _Lines()


class _Lines:
    """Says each line and shows no progress: for pipes and logs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, line: str) -> None:
        click.echo(line, err=True)

    def progress(self, done: int, total: int) -> None:
        pass


class _Bar:
    """A bar with size, speed and time left; it appears with the first bytes."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bar = Progress(
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=None, visible=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        self._bar.console.print(line, highlight=False, markup=False)

    def progress(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total, visible=done < total)
