"""Every error a user can meet: one class and one stable code each.

A class's docstring is its default message. There is no HTTP here; ``http/errors.py`` maps classes
to statuses, and a test walks ``__subclasses__`` and fails when one has no mapping. ``CODES`` lists
the codes that failed jobs carry, with whether another attempt could help.
"""

from typing import ClassVar, Final


class JobServerError(Exception):
    """The request could not be served."""

    code: ClassVar[str] = "internal_error"
    param: str | None = None
    retry_after_s: float | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def message(self) -> str:
        """The text for the person who asked."""
        return str(self)


class InvalidRequest(JobServerError):
    """The request is not valid."""

    code: ClassVar[str] = "invalid_value"


class MalformedJson(InvalidRequest):
    """The body is not valid JSON."""

    code: ClassVar[str] = "invalid_json"


class MissingParameter(InvalidRequest):
    """A required field is missing."""

    code: ClassVar[str] = "missing_required_parameter"


class UnknownParameter(InvalidRequest):
    """There is no such field."""

    code: ClassVar[str] = "unknown_parameter"


class UnsupportedParameter(InvalidRequest):
    """This field is not supported by this server."""

    code: ClassVar[str] = "unsupported_parameter"


class StringTooLong(InvalidRequest):
    """A string is longer than allowed."""

    code: ClassVar[str] = "string_above_max_length"


class PromptTooLong(InvalidRequest):
    """The prompt is longer than the model's context."""

    code: ClassVar[str] = "context_length_exceeded"


class TemplateRefused(InvalidRequest):
    """The model's chat template refused the conversation."""

    code: ClassVar[str] = "template_error"


class IdempotencyConflict(JobServerError):
    """This idempotency key was used before, for a different request."""

    code: ClassVar[str] = "idempotency_key_mismatch"


class RequestTooLarge(JobServerError):
    """The body is larger than this server takes."""

    code: ClassVar[str] = "request_too_large"


class HostNotAllowed(JobServerError):
    """The Host header names a host that this server does not answer for."""

    code: ClassVar[str] = "host_not_allowed"


class JobNotFound(JobServerError):
    """There is no such job."""

    code: ClassVar[str] = "job_not_found"


class DrainNotFound(JobServerError):
    """No drain was asked for since the server started."""

    code: ClassVar[str] = "drain_not_found"


class ModelNotFound(JobServerError):
    """There is no such model here."""

    code: ClassVar[str] = "model_not_found"


class QueueFull(JobServerError):
    """Too many requests wait already; try again a little later."""

    code: ClassVar[str] = "queue_full"
    position: int = 0


class ServerOverloaded(JobServerError):
    """The server cannot keep up with writing; try again a little later."""

    code: ClassVar[str] = "server_overloaded"


class StorageFull(JobServerError):
    """The disk is full. Free some room, where there is a ballast twice `storage.ballast_bytes`
    (128 MiB by default), to go on."""

    code: ClassVar[str] = "storage_full"


class ModelLoading(JobServerError):
    """The model is still being loaded; try again a little later."""

    code: ClassVar[str] = "model_loading"


class ModelUnavailable(JobServerError):
    """No worker for this model could be started."""

    code: ClassVar[str] = "model_unavailable"


class Draining(JobServerError):
    """The server is draining and takes no attached work; durable jobs are accepted and wait."""

    code: ClassVar[str] = "draining"


class ModelChanged(JobServerError):
    """The model has changed since the answer was begun."""

    code: ClassVar[str] = "model_changed"


class ResumeDiverged(JobServerError):
    """The model gives another answer than the one that was begun."""

    code: ClassVar[str] = "resume_diverged"


class TooManyLosses(JobServerError):
    """Workers died too often while this job was running."""

    code: ClassVar[str] = "too_many_losses"


class AttemptTimeout(JobServerError):
    """The attempt took longer than it may."""

    code: ClassVar[str] = "attempt_timeout"


class StorageDamaged(JobServerError):
    """What was stored of this job is damaged."""

    code: ClassVar[str] = "storage_damaged"


class ShuttingDown(JobServerError):
    """The server is stopping and takes no new work."""

    code: ClassVar[str] = "shutting_down"


class WorkerCrashed(JobServerError):
    """The worker process died while this request was running."""

    code: ClassVar[str] = "worker_crashed"


class EngineError(JobServerError):
    """The engine failed while computing this request."""

    code: ClassVar[str] = "engine_error"


class DependencyFailed(JobServerError):
    """A job that this one was to run after failed or was cancelled."""

    code: ClassVar[str] = "dependency_failed"


class PrepareTimeout(JobServerError):
    """Preparing the prompt took too long."""

    code: ClassVar[str] = "prepare_timeout"


class StreamInterrupted(JobServerError):
    """The server stopped before this stream was complete."""

    code: ClassVar[str] = "stream_interrupted"


class DeadlineExceeded(JobServerError):
    """The job's deadline passed before it ended."""

    code: ClassVar[str] = "deadline_exceeded"


class InternalError(JobServerError):
    """The server failed in a way it did not foresee; the log has the details."""

    code: ClassVar[str] = "internal_error"


RETRYABLE: Final[dict[str, bool]] = {
    "context_length_exceeded": False,
    "template_error": False,
    "invalid_value": False,
    "prepare_timeout": False,
    "engine_error": True,
    "worker_crashed": True,
    "model_unavailable": False,
    "deadline_exceeded": False,
    "dependency_failed": False,
    "parent_lost": False,
    "shutting_down": False,
    "stream_interrupted": False,
    "internal_error": False,
    "model_changed": False,
    "resume_diverged": False,
    "too_many_losses": False,
    "storage_damaged": False,
    "attempt_timeout": True,
    "server_overloaded": False,
    "draining": False,
}
"""Codes a job can fail with, and whether another attempt of the same job could succeed."""


def error_for(code: str, message: str, param: str | None = None) -> JobServerError:
    """The error that tells a waiting caller why their job failed."""
    return _BY_CODE.get(_SHOWN_AS.get(code, code), InternalError)(message, param=param)


_SHOWN_AS: Final = {"parent_lost": StreamInterrupted.code}
"""A job that its parent lost is, to the one who reads its stream, an interrupted stream."""


def _all_errors(root: type[JobServerError]) -> list[type[JobServerError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _all_errors(child))]


_BY_CODE: Final = {error.code: error for error in _all_errors(JobServerError)}
