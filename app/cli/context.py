"""What every command shares: reading the settings, and printing results and failures.

Exit statuses: 0 done; 1 failed, refused, or problems found, and a job that failed or was cancelled;
2 wrong usage or settings; 3 no server there; 4 the server cannot take it now; 130 interrupted.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from app.settings_keys import Loaded, SettingsError
from app.settings_load import flag_overrides, load

FAILED = 1
WRONG_SETTINGS = 2
UNREACHABLE = 3
BUSY = 4
INTERRUPTED = 130


class Failed(click.ClickException):
    """One line on standard error, exit status 1."""

    exit_code = FAILED


class WrongSettings(click.ClickException):
    """A setting that cannot be used, exit status 2."""

    exit_code = WRONG_SETTINGS


@contextmanager
def interruptible(hint: Callable[[], str]) -> Generator[None]:
    """Ctrl-C ends the command with a word on what it leaves behind, exit status 130."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(hint(), err=True)
        sys.exit(INTERRUPTED)


def config_file(context: click.Context) -> Path | None:
    """The file that `mlxq --config` named, if it did."""
    found = context.find_root().params.get("config")
    return found if isinstance(found, Path) else None


def settings_of(
    context: click.Context, flags: Mapping[str, object], sets: Iterable[str] = ()
) -> Loaded:
    """The settings with these flags on top. Raises WrongSettings."""
    try:
        return load(config=config_file(context), overrides=flag_overrides(flags, sets))
    except SettingsError as error:
        raise WrongSettings(str(error)) from error


def print_json(value: Any) -> None:
    """One JSON document on standard output: indented on a terminal, one line in a pipe."""
    text = msgspec.json.encode(value, enc_hook=_encode)
    click.echo(msgspec.json.format(text, indent=2 if sys.stdout.isatty() else -1))


def _encode(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")
