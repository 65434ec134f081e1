"""What is asked of schedules: bodies, checked and named by their places."""

from collections.abc import Callable
from typing import Final

import msgspec

from app.domain.cadence import CRON_CHARS_MAX
from app.domain.errors import InvalidRequest, MissingParameter, UnsupportedParameter
from app.domain.schedules import CatchUp, NewSchedule, ScheduleChange, Template
from app.http.explaining import decode, within
from app.http.native import decode as native
from app.http.native.schema import JobSubmission
from app.http.schedules.schema import (
    EVERY_S_MAX,
    NAME_CHARS_MAX,
    ScheduleChangeRequest,
    ScheduleRequest,
)

EXPECTED: Final = {
    "name": f"1 to {NAME_CHARS_MAX} letters, digits and any of _.- behind the first, and must not "
    "begin with sched_",
    "cron": f"a cron expression of five fields and up to {CRON_CHARS_MAX} characters",
    "every_s": f"a number of seconds from 1 to {EVERY_S_MAX}",
    "timezone": "the name of an IANA time zone, as in 'Europe/Berlin'",
    "catch_up": "one or none",
    "paused": "a boolean",
    "job": "an object: a job as for POST /v1/jobs",
}
_ONE_RHYTHM: Final = "Give either 'cron' or 'every_s'"
_IN_JOB: Final = "job."
_NEW: Final = msgspec.json.Decoder(ScheduleRequest)
_CHANGE: Final = msgspec.json.Decoder(ScheduleChangeRequest)


def decode_schedule(body: bytes, draw_seed: Callable[[], int]) -> NewSchedule:
    """The schedule in a body.

    Raises:
        InvalidRequest: one of its kinds, naming the field where there is one.
    """
    asked = decode(_NEW, body, _expected)
    if asked.cron is None and asked.every_s is None:
        raise MissingParameter(f"{_ONE_RHYTHM}.", param="cron")
    _check_rhythm(asked)
    return NewSchedule(
        name=asked.name,
        cron=asked.cron,
        every_s=_whole_ms(asked.every_s),
        timezone=asked.timezone or "UTC",
        catch_up=CatchUp(asked.catch_up or CatchUp.ONE),
        paused=bool(asked.paused),
        template=_template(asked.job, draw_seed),
    )


def decode_change(body: bytes, draw_seed: Callable[[], int], tenant: str) -> ScheduleChange:
    """The change in a body, to a schedule of this tenant.

    Raises:
        InvalidRequest: one of its kinds, naming the field where there is one.
    """
    asked = decode(_CHANGE, body, _expected)
    _check_rhythm(asked)
    job = asked.job
    if job is not None and job.tenant is None:
        job = msgspec.structs.replace(job, tenant=tenant)
    return ScheduleChange(
        cron=asked.cron,
        every_s=_whole_ms(asked.every_s),
        timezone=asked.timezone,
        catch_up=None if asked.catch_up is None else CatchUp(asked.catch_up),
        paused=asked.paused,
        template=None if job is None else _template(job, draw_seed),
    )


def _check_rhythm(asked: ScheduleRequest | ScheduleChangeRequest) -> None:
    if asked.cron is not None and asked.every_s is not None:
        raise InvalidRequest(f"{_ONE_RHYTHM}, not both.", param="every_s")


def _whole_ms(every_s: float | None) -> float | None:
    return None if every_s is None else round(every_s, 3)


def _template(job: JobSubmission, draw_seed: Callable[[], int]) -> Template:
    for name in ("scheduled_at", "after", "on_failure"):
        if getattr(job, name) is not None:
            text = f"Unsupported parameter: 'job.{name}' has no place in a schedule."
            raise UnsupportedParameter(text, param=f"job.{name}")
    with within("job"):
        draft = native.to_draft(job, draw_seed)
    return Template(draft=draft, seeded=job.seed is not None or job.body.seed is not None)


def _expected(path: str) -> str | None:
    if path.startswith(_IN_JOB):
        return native.expected(path.removeprefix(_IN_JOB))
    return EXPECTED.get(path)
