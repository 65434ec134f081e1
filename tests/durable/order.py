"""What must be true of a store at any moment, whatever was killed before it."""

from pathlib import Path

from app.storage.verify import verify_file


def assert_in_order(path: Path) -> None:
    """No invariant is violated."""
    assert verify_file(path).violations == []
