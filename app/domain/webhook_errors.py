"""What can be wrong with a request about webhooks."""

from typing import ClassVar

from app.domain.errors import InvalidRequest, JobServerError


class EndpointNotFound(JobServerError):
    """There is no such webhook endpoint."""

    code: ClassVar[str] = "webhook_endpoint_not_found"


class EventNotFound(JobServerError):
    """There is no such event, or it is not kept any more."""

    code: ClassVar[str] = "webhook_event_not_found"


class TooManyEndpoints(JobServerError):
    """There are as many webhook endpoints as there may be; delete one."""

    code: ClassVar[str] = "too_many_webhook_endpoints"


class UrlRefused(InvalidRequest):
    """Nothing may be sent to this URL."""

    code: ClassVar[str] = "webhook_url_refused"


class Unanswered(JobServerError):
    """The endpoint gave no answer."""

    code: ClassVar[str] = "webhook_unanswered"
