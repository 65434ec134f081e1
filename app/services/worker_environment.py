"""The environment of a worker process."""

import sys
from collections.abc import Mapping
from typing import Final

TUNABLES: Final = "GLIBC_TUNABLES"

HUGE_PAGES: Final = "glibc.malloc.hugetlb"
"""Reading all weights for every token, a worker on the CPU waits for address translation; with
transparent huge pages, which Linux grants by default only on request, a decode step takes 4 to 5 %
less. The C library reads this when a process starts: https://sourceware.org/glibc/manual/ , "Memory
Allocation Tunables". Others ignore it."""


def worker_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Ours, with the hub kept out of it, since models are directories on disk, and huge pages asked
    for unless ``GLIBC_TUNABLES`` already says something about them."""
    environment = {
        **ours,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if sys.platform == "linux":
        environment[TUNABLES] = _with_huge_pages(ours.get(TUNABLES, ""))
    return environment


def _with_huge_pages(tunables: str) -> str:
    given = [item for item in tunables.split(":") if item]
    if any(item.partition("=")[0] == HUGE_PAGES for item in given):
        return tunables
    return ":".join([*given, f"{HUGE_PAGES}=1"])
