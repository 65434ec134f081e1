"""Waiting for something to become true: the only place in the tests where time is spent."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

POLL_S: Final = 0.005

_Found = TypeVar("_Found")


def wait_until(
    predicate: Callable[[], _Found], timeout: float = 5.0, what: str = "the condition"
) -> _Found:
    """The first true value of ``predicate``.

    Raises:
        AssertionError: when there is none within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = predicate()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what} did not come within {timeout} s")
        time.sleep(POLL_S)
