"""What is on disk of a job's text: only what may be, laid out as it must be, and intact."""

import sqlite3
from collections.abc import Iterator
from typing import Final

from app.storage.encoding import checksum
from app.storage.verify.violation import Rule, Violation, broken, first

_DURABILITY: Final = (
    Rule(
        "is attached, but its request is on disk",
        "SELECT id FROM job WHERE durability = 'attached' AND request IS NOT NULL",
    ),
    Rule(
        "is attached, but its output is on disk",
        "SELECT DISTINCT job.id FROM job JOIN chunk ON chunk.job = job.id"
        " WHERE job.durability = 'attached'",
    ),
    Rule(
        "is {}, but its request is not on disk",
        "SELECT id, durability FROM job"
        " WHERE durability <> 'attached' AND (request IS NULL OR request_checksum IS NULL)",
    ),
    Rule(
        "goes at its own time, but its request has no pad",
        "SELECT id FROM job WHERE keep_ms IS NOT NULL AND request IS NOT NULL AND pad IS NULL",
    ),
    Rule(
        "goes at its own time, but its output has no pad",
        "SELECT DISTINCT job.id FROM job JOIN chunk ON chunk.job = job.id"
        " WHERE job.keep_ms IS NOT NULL AND chunk.pad IS NULL",
    ),
)


def durability(driver: sqlite3.Connection) -> list[Violation]:
    """No text of an attached job is on disk, and all of any other."""
    return broken(driver, "durability", *_DURABILITY)


def checksums(driver: sqlite3.Connection) -> list[Violation]:
    """Every payload is what was written."""
    return first(_damaged(driver))


def _damaged(driver: sqlite3.Connection) -> Iterator[Violation]:
    for job, stored, request in driver.execute(
        "SELECT id, request_checksum, request FROM job WHERE request IS NOT NULL"
    ):
        if checksum(request) != stored:
            yield Violation("checksums", job, "its request is not what was submitted")
    for job, number, stored, tokens, logprobs, parts in driver.execute(
        "SELECT job, number, checksum, tokens, logprobs, parts FROM chunk"
    ):
        if checksum(tokens, logprobs, parts) != stored:
            yield Violation("checksums", job, f"row {number} of its output is not what was written")
    for subject, stored, payload in driver.execute("SELECT subject, checksum, payload FROM report"):
        if checksum(payload) != stored:
            yield Violation("checksums", subject, "its report is not what was written")
