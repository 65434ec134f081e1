"""Values that the command line takes in a form of its own."""

from datetime import datetime

import click
from typing_extensions import override


class Tag(click.ParamType[tuple[str, str]]):
    """``KEY=VALUE`` as a pair."""

    name = "KEY=VALUE"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The key and the value; the first sign of equality parts them."""
        key, sign, text = str(value).partition("=")
        if not sign or not key or ":" in key:
            self.fail("write it as KEY=VALUE; the key holds no colon", param, ctx)
        return key, text


class Time(click.ParamType[str]):
    """An ISO 8601 time, as one with its offset; local time where it names none."""

    name = "TIME"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The time as the server reads it."""
        try:
            return datetime.fromisoformat(str(value)).astimezone().isoformat()
        except (ValueError, OverflowError):
            self.fail("write it as 2030-01-31T12:00:00+01:00", param, ctx)
