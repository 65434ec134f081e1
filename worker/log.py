"""The worker's log: JSON lines on standard error, which the parent has pointed at a file.

Lines name generation, job and attempt. They never hold a prompt or an output, and so no text of an
exception that a job caused either: templates and tokenizers quote what they were given. ``origin``
tells where such an exception came from instead.
"""

import logging
import sys
import traceback

import structlog

from shared.ids import GenerationId

_FRAMES_TOLD = 8


def configure(level: str, generation: GenerationId) -> None:
    """Set the process's log up."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _generation_named(generation),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def origin(error: BaseException) -> dict[str, str]:
    """The type of an exception and where it was raised, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_TOLD:]
    where = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    return {"error": type(error).__name__, "where": where}


def _generation_named(generation: GenerationId) -> structlog.types.Processor:
    def add(
        _logger: structlog.types.WrappedLogger, _method: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        event["generation"] = generation
        return event

    return add


def _number(level: str) -> int:
    return logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
