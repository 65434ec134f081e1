"""What the OpenAPI document says of the native door's requests."""

from dataclasses import dataclass
from typing import ClassVar, Final

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, OpenAPIType, Parameter, Schema

from app.domain.job import JobState
from app.http.documentation import Body, Documented, header, query_parameter
from app.http.native.query import EVENT_MAX, PAGE_DEFAULT, PAGE_MAX
from app.http.native.schema import BulkSubmission, JobSubmission

TENANT: Final = query_parameter("tenant", "Whose job; `default` if nothing else is said.")
KEY: Final = header(
    "Idempotency-Key",
    "1 to 255 printable characters. Sent again with the same body within 24 hours it makes no "
    "second job; with another body it is refused with 422.",
)
LISTED: Final = (
    query_parameter(
        "state",
        "One state, or several: repeated, or with commas between.",
        Schema(
            type=OpenAPIType.ARRAY,
            items=Schema(type=OpenAPIType.STRING, enum=[str(state) for state in JobState]),
        ),
    ),
    TENANT,
    query_parameter("tag", "`key:value`: jobs with this tag."),
    query_parameter("model", "Jobs for this model."),
    query_parameter("after", "The `last_id` of the page before."),
    query_parameter(
        "limit",
        "Jobs on a page.",
        Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=PAGE_MAX, default=PAGE_DEFAULT),
    ),
)
FOLLOWED: Final = (
    TENANT,
    query_parameter(
        "starting_after",
        "The number of the last event that is known: only later ones are sent.",
        Schema(type=OpenAPIType.INTEGER, minimum=0, maximum=EVENT_MAX),
    ),
    header("Last-Event-ID", "The same as `starting_after`, where the query has none."),
)

STREAM_NOTE: Final = (
    "Server-sent events: `event` is the type, `id` the number, `data` an object with `type` and "
    "`seq` (the number again). In this order: `created` {job}, `started` {prompt_tokens, "
    "cached_tokens}, then any of `item_open` {choice, item, kind, name}, `text`, `reasoning` and "
    "`tool_arguments` {choice, text}, `item_close` {choice, item}, and last `ended` {state, "
    "finish_reason, usage, failure}. Numbers start at 0 without gaps, and number N is the same "
    "event for ever. A stream that closes without `ended` was cut: ask again with "
    "`starting_after`. An event `error` has no number: the job can no longer be followed. "
    "Comments (`: ping`) keep a silent stream open."
)


@dataclass
class SubmitOperation(Documented):
    """`POST /v1/jobs`."""

    body: ClassVar[Body] = JobSubmission
    asked: ClassVar[tuple[Parameter, ...]] = (KEY,)
    note: ClassVar[str] = "Unknown fields are refused."


@dataclass
class BulkOperation(Documented):
    """`POST /v1/jobs/bulk`."""

    body: ClassVar[Body] = BulkSubmission
    asked: ClassVar[tuple[Parameter, ...]] = (KEY,)
    note: ClassVar[str] = "A refusal names the job: `error.param` is `jobs[17].body.messages`."


@dataclass
class JobOperation(Documented):
    """Operations on one job."""

    asked: ClassVar[tuple[Parameter, ...]] = (TENANT,)


@dataclass
class RetryOperation(Documented):
    """`POST /v1/jobs/{job_id}/retry`."""

    asked: ClassVar[tuple[Parameter, ...]] = (TENANT, KEY)


@dataclass
class ListOperation(Documented):
    """`GET /v1/jobs`."""

    asked: ClassVar[tuple[Parameter, ...]] = LISTED


@dataclass
class EventsOperation(Documented):
    """`GET /v1/jobs/{id}/events`."""

    asked: ClassVar[tuple[Parameter, ...]] = FOLLOWED
    note: ClassVar[str] = STREAM_NOTE

    def __post_init__(self) -> None:
        super().__post_init__()
        stream = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))
        self.responses = {
            **(self.responses or {}),
            "200": OpenAPIResponse(
                description="The events.", content={"text/event-stream": stream}
            ),
        }
