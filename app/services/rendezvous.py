"""Where workers find this server: the socket in the run directory.

What keeps a desktop's or a container's temporary files tidy may take either away. Workers that are
connected do not notice; who connects next would not find us, so both are put back.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from app.supervision.run_dir import RunDirUnsafe, restore_run_dir

_log = structlog.get_logger("rendezvous")


class Rendezvous:
    """Keeps the socket where it is looked for.

    Args:
        directory: where it lies.
        bind_again: sees that the socket can be found at its path, and says if it could not.

    Attributes:
        trouble: why it cannot be found, while that lasts.
    """

    def __init__(self, directory: Path, bind_again: Callable[[], bool]) -> None:
        self._directory = directory
        self._bind_again = bind_again
        self.trouble: str | None = None

    def keep(self) -> None:
        """Look whether all is there, and put back what is not."""
        try:
            restored = restore_run_dir(self._directory)
            bound = self._bind_again()
        except (RunDirUnsafe, OSError) as error:
            self._in_trouble(str(error))
            return
        self.trouble = None
        if restored or bound:
            _log.warning("socket_bound_again", directory=str(self._directory))

    def _in_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            _log.error("socket_out_of_reach", error=trouble)
        self.trouble = trouble
