"""What must be true of a store at any moment, whatever was killed before it."""

from app.storage.verify import verify_file
from tests.durable.place import Place


def assert_in_order(place: Place) -> None:
    """No invariant is violated."""
    assert not verify_file(place.store.path).violations
