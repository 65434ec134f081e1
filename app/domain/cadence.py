"""The dues of cron expressions and of fixed intervals.

A cron expression has five fields and is read as Debian's cron does, in its time zone. Around a
change of the clocks: what is to run at a set time in the hour that is left out runs right behind
it, what is to run at a set time in the hour that comes twice runs once, at its first coming; what
runs every hour or oftener goes on by elapsed time. Intervals are counted from their anchor in UTC,
and know no such changes.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

import msgspec
from cronsim import CronSim, CronSimError

from app.domain.schedules import Cadence, Timing

CRON_FIELDS: Final = 5
CRON_CHARS_MAX: Final = 256


class NoSuchCron(ValueError):
    """This is no cron expression, or one that never comes true."""


class Every(msgspec.Struct, frozen=True):
    """Every ``step`` from ``anchor`` on."""

    anchor: datetime
    step: timedelta

    def after(self, moment: datetime) -> datetime:
        """The first due after this moment; the first of all is one step after the anchor."""
        return self.anchor + self.step * (max(0, (moment - self.anchor) // self.step) + 1)

    def latest(self, moment: datetime) -> datetime:
        """The last due at or before this moment."""
        return self.anchor + self.step * ((moment - self.anchor) // self.step)


class Cron(msgspec.Struct, frozen=True):
    """A cron expression in a time zone."""

    expression: str
    zone: tzinfo

    def after(self, moment: datetime) -> datetime:
        """The first due after this moment."""
        dues = CronSim(self.expression, moment.astimezone(self.zone))
        due = next(dues).astimezone(UTC)
        while due <= moment:  # an hour that came twice
            due = next(dues).astimezone(UTC)
        return due

    def latest(self, moment: datetime) -> datetime:
        """The last due at or before this moment."""
        behind = moment + timedelta(microseconds=1)
        dues = CronSim(self.expression, behind.astimezone(self.zone), reverse=True)
        due = next(dues).astimezone(UTC)
        while due > moment:
            due = next(dues).astimezone(UTC)
        return due


def cadence_of(timing: Timing, zone: tzinfo) -> Cadence:
    """The dues of a timing whose time zone is ``zone``.

    Raises:
        NoSuchCron: its expression cannot be read, or names a day that never comes.
    """
    if timing.every_s is not None:
        return Every(timing.anchor, timedelta(seconds=timing.every_s))
    expression = timing.cron or ""
    if len(expression.split()) != CRON_FIELDS:
        raise NoSuchCron("it must have five fields: minute, hour, day, month, weekday")
    cron = Cron(expression, zone)
    try:
        cron.after(timing.anchor)
    except CronSimError as error:
        raise NoSuchCron(str(error)) from None
    except StopIteration:
        raise NoSuchCron("it names no day that ever comes") from None
    return cron
