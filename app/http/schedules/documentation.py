"""What the OpenAPI document says of requests about schedules."""

from dataclasses import dataclass
from typing import ClassVar

from litestar.openapi.spec import Parameter

from app.http.documentation import Body, Documented
from app.http.native.documentation import TENANT
from app.http.schedules.schema import ScheduleChangeRequest, ScheduleRequest


@dataclass
class CreateOperation(Documented):
    """`POST /v1/schedules`."""

    body: ClassVar[Body] = ScheduleRequest
    note: ClassVar[str] = (
        "Each due submits one `job`, whatever dies when; none does so twice. The job is as for "
        "`POST /v1/jobs`, but for `scheduled_at`, `after` and `on_failure`; without a seed each "
        "draws its own. The schedule belongs to the job's tenant."
    )


@dataclass
class ChangeOperation(Documented):
    """`PATCH /v1/schedules/{schedule}`."""

    body: ClassVar[Body] = ScheduleChangeRequest
    asked: ClassVar[tuple[Parameter, ...]] = (TENANT,)
    note: ClassVar[str] = (
        "With another timing, or after a pause, the next due is the first from now on."
    )


@dataclass
class ScheduleOperation(Documented):
    """Operations on one schedule, and the list of them."""

    asked: ClassVar[tuple[Parameter, ...]] = (TENANT,)
