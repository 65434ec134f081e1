"""What a worker process finds in its environment."""

import sys

import pytest

from app.services.worker_environment import TUNABLES, worker_environment

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the C library's own")


def test_the_parents_environment_is_passed_on_and_the_hub_is_shut_out() -> None:
    environment = worker_environment({"HOME": "/somewhere"})
    assert environment["HOME"] == "/somewhere"
    assert environment["HF_HUB_OFFLINE"] == "1"


@linux_only
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=3", "glibc.malloc.check=3:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_huge_pages_are_asked_for_unless_the_user_has_said_something_about_them(
    given: str, expected: str
) -> None:
    ours = {TUNABLES: given} if given else {}
    assert worker_environment(ours)[TUNABLES] == expected
