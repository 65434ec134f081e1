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

    def assert_back(self, descriptors: int = 0) -> None:
        """Nothing is open any more that was not open before, but for so many ``descriptors``: jobs,
        rows, processes, sockets. Another worker may have taken the place of one."""
        self._server.wait_until_idle(BACK_S)
        try:
            wait_until(lambda: not self._left(descriptors), BACK_S)
        except AssertionError:
            raise AssertionError(self._left(descriptors)) from None

    def _left(self, descriptors: int) -> list[str]:
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
        if more > descriptors:
            left.append(f"{more} descriptors more: {_descriptors(server.pid)}")
        return left


@contextmanager
def nothing_stays(server: RunningServer, but_descriptors: int = 0) -> Generator[None]:
    """Whatever happens inside, the server is as it was before when it is over."""
    before = Traces(server)
    yield
    before.assert_back(but_descriptors)


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
