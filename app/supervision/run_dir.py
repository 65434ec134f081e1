"""The run directory: where the socket lies.

Named by a digest of the real data path, so it is the same at every start and short enough for a
socket; private to the user; cleaned of stale files by whoever holds the data directory's lock.
"""

import os
import shutil
import stat
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from shared.limits import IPC_PATH_BYTES_MAX

SOCKET_NAME: Final = "w.sock"
RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
_DIGEST_CHARS: Final = 16


class RunDirUnsafe(Exception):
    """The run directory cannot be used: someone else owns it, its path is too long for a socket, or
    the system does not let us."""


def run_dir_for(data_dir: Path) -> Path:
    """Where the run directory of this data directory is; it need not exist yet."""
    digest = sha256(os.fsencode(data_dir.resolve())).hexdigest()[:_DIGEST_CHARS]
    return _runtime_root() / f"mlxq-{os.getuid()}-{digest}"


def prepare_run_dir(data_dir: Path) -> Path:
    """Make the directory private and empty.

    Raises:
        RunDirUnsafe: when it belongs to another user, or cannot be made, or its socket's path is
            too long.
    """
    path = run_dir_for(data_dir)
    size = len(os.fsencode(path / SOCKET_NAME))
    if size > IPC_PATH_BYTES_MAX:
        raise RunDirUnsafe(
            f"{path / SOCKET_NAME} has {size} bytes, too long for a socket, which takes"
            f" {IPC_PATH_BYTES_MAX}; set {_root_variable()} to a shorter directory"
        )
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        _make_private(path)
    except OSError as error:
        raise RunDirUnsafe(f"{path} cannot be used: {error.strerror}") from error
    return path


def restore_run_dir(path: Path) -> bool:
    """Make the directory again if it was taken away; whether it was. One that is there is left as
    it is.

    Raises:
        RunDirUnsafe: when something else stands there, or it cannot be made.
    """
    try:
        missing = not path.is_dir()
        if missing:
            path.mkdir(mode=0o700)
        _check_own(path)
    except OSError as error:
        raise RunDirUnsafe(f"{path} cannot be made again: {error.strerror}") from error
    return missing


def _check_own(path: Path) -> None:
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise RunDirUnsafe(f"{path} is not a directory of this user; remove it")


def _make_private(path: Path) -> None:
    _check_own(path)
    path.chmod(0o700)
    for stale in path.iterdir():
        if stale.is_dir() and not stale.is_symlink():
            shutil.rmtree(stale)
        else:
            stale.unlink()


def _runtime_root() -> Path:
    if _root_variable() == RUNTIME_VARIABLE:
        return Path(os.environ[RUNTIME_VARIABLE])
    return Path(tempfile.gettempdir())


def _root_variable() -> str:
    """What says where run directories lie."""
    runtime = os.environ.get(RUNTIME_VARIABLE)
    return RUNTIME_VARIABLE if runtime and Path(runtime).is_dir() else "TMPDIR"
