"""What the operating system knows about this process."""

import resource
import sys
from pathlib import Path
from typing import Final

_STARTED_FIELD: Final = 19
"""Place of ``starttime`` behind the command's closing bracket in ``/proc/<pid>/stat``."""


def started() -> int:
    """When this process started, in clock ticks since boot; 0 where there is no ``/proc``.

    Together with the pid this names a process for good.
    """
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[_STARTED_FIELD])


def rss_bytes() -> int:
    """Memory in use now; where there is no ``/proc``, the most that was in use so far."""
    try:
        statm = Path("/proc/self/statm").read_text(encoding="ascii")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return int(statm.split()[1]) * resource.getpagesize()
