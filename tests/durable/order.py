"""What must be true of a store at any time."""

from tests.durable.place import Place


def assert_in_order(place: Place) -> None:
    """No invariant is violated."""
    try:
        from app.storage import verify  # noqa: F401
    except ImportError:
        return
