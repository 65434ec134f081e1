"""What the OpenAPI document says of requests about reports."""

from dataclasses import dataclass
from typing import ClassVar, Final

from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, OpenAPIType, Parameter, Schema

from app.http.documentation import Body, Documented, header, query_parameter
from app.http.reports.asking import PAGE_DEFAULT, PAGE_MAX
from app.http.reports.schema import AckRequest, ConsumerRequest

TENANT: Final = query_parameter(
    "tenant", "Whose consumer it is; the operator's if nothing is said."
)
CONSUMER: Final = query_parameter("consumer", "Read on from what this consumer has acknowledged.")
FILTERS: Final = (
    query_parameter("kind", "Without a consumer: only `job`, `generation`, `drain`. Repeatable."),
    query_parameter(
        "class",
        "Without a consumer: of jobs only these classes. Repeatable; `batch` only if asked for.",
    ),
    query_parameter("tag", "Without a consumer: `key:value`, jobs with this tag. Repeatable."),
    query_parameter("include_attached", "Without a consumer: `true` for foreground jobs, too."),
)
AFTER: Final = query_parameter(
    "after", "Without a consumer: read on from this place, written as `epoch:seq`."
)
PAGED: Final = (
    CONSUMER,
    TENANT,
    query_parameter(
        "limit",
        "Reports on a page.",
        Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=PAGE_MAX, default=PAGE_DEFAULT),
    ),
    AFTER,
    *FILTERS,
)
STREAMED: Final = (
    CONSUMER,
    TENANT,
    query_parameter("after", "The last place that is known, written as `epoch:seq`."),
    *FILTERS,
    header("Last-Event-ID", "The same as `after`, where the query has none."),
)
STREAM_NOTE: Final = (
    "Server-sent events: `event` is `report`, `id` its place as `epoch:seq`, `data` the report. A "
    "consumer's stream begins behind what it has acknowledged, or behind `after` where that is "
    "further; another begins with what comes next, or behind `after`. The stream goes on until "
    "either side closes it; comments (`: ping`) keep a silent one open. An event `error` has no "
    "place and is the last."
)


@dataclass
class ConsumerOperation(Documented):
    """Operations on one consumer, and the list of them."""

    asked: ClassVar[tuple[Parameter, ...]] = (TENANT,)


@dataclass
class CreateOperation(Documented):
    """`POST /v1/consumers`."""

    body: ClassVar[Body] = ConsumerRequest
    note: ClassVar[str] = (
        "Without filters: jobs of the classes `interactive` and `background` that were not tied "
        "to a connection, and for the operator receipts of workers and drains. 200 when it is "
        "there already and reads the same; one that was parked begins anew."
    )


@dataclass
class PageOperation(Documented):
    """`GET /v1/reports`."""

    asked: ClassVar[tuple[Parameter, ...]] = PAGED
    note: ClassVar[str] = (
        "Key on (`id`, `revision`): a higher revision replaces what a lower one said. Acknowledge "
        "`next` when all of the page is done, also when it is empty."
    )


@dataclass
class AckOperation(Documented):
    """`POST /v1/reports/ack`."""

    body: ClassVar[Body] = AckRequest
    asked: ClassVar[tuple[Parameter, ...]] = (TENANT,)
    note: ClassVar[str] = (
        "With `from` it is compare-and-set. To repeat an acknowledgement does no harm."
    )


@dataclass
class StreamOperation(Documented):
    """`GET /v1/reports/stream`."""

    asked: ClassVar[tuple[Parameter, ...]] = STREAMED
    note: ClassVar[str] = STREAM_NOTE

    def __post_init__(self) -> None:
        super().__post_init__()
        stream = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))
        self.responses = {
            **(self.responses or {}),
            "200": OpenAPIResponse(
                description="The reports.", content={"text/event-stream": stream}
            ),
        }
