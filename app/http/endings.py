"""What a job's ending means for the person who waits for it."""

from app.domain.errors import InternalError, JobServerError, StreamInterrupted, error_for
from app.domain.events import Ended, FollowedEvent
from app.domain.job import Ending, JobState


def ending_error(ending: Ending) -> JobServerError | None:
    """The error to answer with; None when the job was completed."""
    if ending.state is JobState.COMPLETED:
        return None
    if ending.failure is not None:
        failure = ending.failure
        return error_for(failure.code, failure.message, failure.param)
    if ending.state is JobState.CANCELLED:
        return StreamInterrupted("The request was cancelled before it was complete.")
    return InternalError()


def refuse_if_failed(event: FollowedEvent | None) -> None:
    """Turns a job that ended before it started into the status of its answer.

    Raises:
        JobServerError: what the job failed with.
    """
    if isinstance(event, Ended) and (error := ending_error(event.ending)) is not None:
        raise error
