"""The run directory: where the socket lies.

Named by a digest of the real data path, so it is the same at every start and short enough for a
socket; private to the user; cleaned of stale files by whoever holds the data directory's lock.
"""

import os
import stat
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from shared.limits import IPC_PATH_BYTES_MAX

SOCKET_NAME: Final = "w.sock"
_DIGEST_CHARS: Final = 16


class RunDirUnsafe(Exception):
    """Someone else owns the run directory, or its path is too long for a socket."""


def run_dir_for(data_dir: Path) -> Path:
    """Where the run directory of this data directory is; it need not exist yet."""
    digest = sha256(os.fsencode(data_dir.resolve())).hexdigest()[:_DIGEST_CHARS]
    return _runtime_root() / f"mlxq-{os.getuid()}-{digest}"


def prepare_run_dir(data_dir: Path) -> Path:
    """Make the directory private and empty.

    Raises:
        RunDirUnsafe: when it belongs to another user or its socket's path is too long.
    """
    path = run_dir_for(data_dir)
    if len(os.fsencode(path / SOCKET_NAME)) > IPC_PATH_BYTES_MAX:
        raise RunDirUnsafe(f"{path} is too long for a socket; set TMPDIR to a shorter directory")
    path.mkdir(mode=0o700, exist_ok=True)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise RunDirUnsafe(f"{path} is not a directory of this user; remove it")
    path.chmod(0o700)
    for stale in path.iterdir():
        stale.unlink()
    return path


def _runtime_root() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime)
    return Path(tempfile.gettempdir())
