"""What must be true of a store at any moment, whatever was killed before it."""

from pathlib import Path

from app.storage.verify import Violation, verify_file

RECEIPTS_TO_COME = "is over, but has no receipt"
"""What is still found: workers' receipts are not written yet."""


def violations(path: Path) -> list[Violation]:
    """What is wrong with this database."""
    found = verify_file(path).violations
    return [violation for violation in found if violation.message != RECEIPTS_TO_COME]


def assert_in_order(path: Path) -> None:
    """No invariant is violated."""
    assert violations(path) == []
