"""What a server leaves behind in its process, in its directory and in the system."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e.server import RunningServer
from tests.waiting import wait_until

BACK_S: Final = 20.0
"""How long a server may take to let go of what it held."""


class Traces:
    """What a server holds in a quiet moment, and whether that is all it holds later."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        _see_all_readers(server)
        self._descriptors = _descriptors(server.pid)
        self._workers = len(server.site.workers())
        self._sockets = _sockets(server)

    def assert_back(self, timeout: float = BACK_S) -> None:
        """Nothing is open any more that was not open before: jobs, rows, descriptors, processes,
        sockets. Another worker may have taken the place of one."""
        self._server.wait_until_idle(timeout)
        wait_until(lambda: self._left() == [], timeout, "the end of all that was begun")
        assert self._left() == []

    def _left(self) -> list[str]:
        server = self._server
        rows = {
            "open attempts": "SELECT 1 FROM attempt WHERE outcome IS NULL",
            "commands": "SELECT 1 FROM command",
            "open jobs": "SELECT 1 FROM job WHERE finalized_at IS NULL",
        }
        left = [what for what, sql in rows.items() if server.store.rows(sql)]
        living = server.store.rows("SELECT 1 FROM generation WHERE state <> 'gone'")
        workers = len(server.site.workers())
        if len(living) != workers or workers > max(1, self._workers):
            left.append(f"{len(living)} generations and {workers} workers")
        if _sockets(server) != self._sockets:
            left.append(f"sockets {_sockets(server)}, not {self._sockets}")
        more = len(_descriptors(server.pid)) - len(self._descriptors)
        if more > 0:
            left.append(f"{more} descriptors more: {_descriptors(server.pid)}")
        return left


@contextmanager
def nothing_stays(server: RunningServer) -> Generator[None]:
    """Whatever happens inside, the server is as it was before when it is over."""
    before = Traces(server)
    yield
    before.assert_back()


def _descriptors(pid: int) -> list[str]:
    """What a process has open, but for kept connections of the test's own client."""
    opened: list[str] = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            opened.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return sorted(target for target in opened if "mlxq.db" not in target)


def _sockets(server: RunningServer) -> list[str]:
    """The files in the run directory."""
    return sorted(path.name for path in server.site.runtime_dir.rglob("*") if not path.is_dir())


def _see_all_readers(server: RunningServer) -> None:
    """A quiet moment: a worker is there, and the client's connection stands."""
    assert server.chat("[[tokens=1]]").status_code == 200
    server.wait_until_idle()
