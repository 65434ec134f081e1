"""What the campaigns share with the suites that they are the long version of."""

from tests.durable.conftest import new_place

__all__ = ["new_place"]
