"""Logging: structured, to standard error, with ids, never with text of a request or an answer."""

import logging
import sys
from typing import Literal

import structlog


def configure(level: str, form: Literal["auto", "console", "json"]) -> None:
    """Set up structlog and the standard library's loggers to one output.

    ``auto`` is readable lines on a terminal and JSON lines elsewhere.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer()
    )
    processors = [*shared[:-1], renderer] if console else [*shared, renderer]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=_number("warning"), stream=sys.stderr, format="%(name)s %(message)s")


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
