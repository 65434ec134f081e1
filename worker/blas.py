"""An optimised BLAS for MLX's CPU build, from what pip installed.

The Linux CPU wheel of MLX links the reference BLAS: 2 to 8 GFLOP/s in float32. OpenBLAS does 130,
and the `scipy-openblas32` wheel brings it, but with every exported symbol prefixed `scipy_`. So its
library is copied once into the cache, the prefix is dropped with `patchelf`, and the copy is loaded
with RTLD_GLOBAL before `mlx.core`: symbols of such a library win over those MLX was linked with.

Only the standard library is used here, since nothing may import MLX before `load` has run.
"""

import ctypes
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PACKAGE = "scipy-openblas32"
LIBRARY = "libscipy_openblas.so"
COPY = "libopenblas_mlxq.so"
_PREFIXED = re.compile(rb"\0(scipy_\w+)(?=\0)")
_PATCH_TIMEOUT_S = 120

BlasMode = Literal["auto", "openblas", "none"]


class BlasUnavailable(Exception):
    """The optimised BLAS cannot be used here. The message says why, `cure` what to do."""

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(problem)
        self.cure = cure


@dataclass(frozen=True, slots=True)
class BlasReport:
    """What MLX will multiply matrices with. `cure` is set when that is slow and can be helped."""

    kind: Literal["openblas", "bundled", "accelerate"]
    version: str | None = None
    threads: int = 1
    path: str | None = None
    cure: str | None = None


def load(mode: BlasMode, threads: int, cache_dir: Path) -> BlasReport:
    """Put the optimised BLAS in place of the reference one. Call it before `mlx.core` is imported.

    `threads` 0 takes `default_threads()`. With `auto` a failure is told in the report's `cure`;
    with `openblas` it is raised as BlasUnavailable.
    """
    if sys.platform == "darwin":
        return BlasReport("accelerate")
    if mode == "none":
        return BlasReport("bundled", cure="Set worker.blas to auto: the bundled BLAS is slow")
    try:
        return _load_openblas(threads or default_threads(), cache_dir)
    except BlasUnavailable as error:
        if mode == "openblas":
            raise
        return BlasReport("bundled", cure=f"{error}. {error.cure}")


def prepare(cache_dir: Path) -> Path:
    """Make the renamed copy and return its path; an existing one is taken as it is.

    Safe under several workers at once, and a crash on the way leaves nothing half made. Raises
    BlasUnavailable.
    """
    source = _installed_library()
    home = cache_dir / "blas" / f"{_version()}-{_fingerprint(source)}"
    target = home / COPY
    if target.is_file():
        return target
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_file():
                _make_copy(source, target)
    except OSError as error:
        raise BlasUnavailable(
            f"cannot write {home}: {error.strerror}", "Make storage.cache_dir writable"
        ) from error
    return target


def default_threads() -> int:
    """Physical cores of this process less one, at least 1: the parent and the drivers need one."""
    return max(1, _physical_cores(os.sched_getaffinity(0)) - 1)


def _load_openblas(threads: int, cache_dir: Path) -> BlasReport:
    if "mlx.core" in sys.modules:
        raise BlasUnavailable("mlx.core was imported first", "Load the BLAS before MLX")
    path = prepare(cache_dir)
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)  # read by the library when it is loaded
    try:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        return BlasReport("openblas", _config(library), _threads(library), str(path))
    except (OSError, AttributeError) as error:
        raise BlasUnavailable(
            f"{path} cannot be loaded: {error}", f"Delete {path.parent} and start again"
        ) from error


def _config(library: ctypes.CDLL) -> str:
    get_config = library.openblas_get_config
    get_config.restype = ctypes.c_char_p
    raw: bytes = get_config()
    return raw.decode("ascii", "replace").strip()


def _threads(library: ctypes.CDLL) -> int:
    return int(library.openblas_get_num_threads())


def _installed_library() -> Path:
    """The library inside the installed package, found without importing (and so loading) it."""
    try:
        files = importlib.metadata.distribution(PACKAGE).files or ()
    except importlib.metadata.PackageNotFoundError as error:
        raise BlasUnavailable(
            f"{PACKAGE} is not installed", "Install mlxq with its dependencies again"
        ) from error
    for file in files:
        if file.name == LIBRARY:
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise BlasUnavailable(
        f"{PACKAGE} has no {LIBRARY} for {platform.machine()}",
        "Set worker.blas to none on this machine",
    )


def _version() -> str:
    return importlib.metadata.version(PACKAGE)


def _fingerprint(source: Path) -> str:
    """Tells two builds of one version apart without reading 25 MB at every start."""
    stat = source.stat()
    text = f"{platform.machine()} {stat.st_size} {stat.st_mtime_ns} {source}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _make_copy(source: Path, target: Path) -> None:
    """Copy, rename the symbols, check, flush, and only then give it its name."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as place:
        names = Path(place) / "names"
        draft = Path(place) / COPY
        names.write_text("".join(f"{name} {name[6:]}\n" for name in _prefixed(source)))
        shutil.copyfile(source, draft)
        _patch(["--rename-dynamic-symbols", str(names), str(draft)])
        _patch(["--set-soname", COPY, str(draft)])
        _check(draft)
        with draft.open("rb") as made:
            os.fsync(made.fileno())
        draft.replace(target)


def _prefixed(source: Path) -> list[str]:
    """Every `scipy_` name in the library's string table (5,156 of them in 0.3.34)."""
    names = {name.decode() for name in _PREFIXED.findall(source.read_bytes())}
    if not names:
        raise BlasUnavailable(
            f"{source} exports no scipy_ symbols", "Install the scipy-openblas32 of the lock file"
        )
    return sorted(names)


def _patch(arguments: list[str]) -> None:
    try:
        subprocess.run(
            [_patchelf(), *arguments], check=True, capture_output=True, timeout=_PATCH_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        said: bytes = error.stderr
        raise BlasUnavailable(
            f"patchelf failed: {said.decode(errors='replace').strip()}", "Install patchelf >= 0.19"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BlasUnavailable(
            f"patchelf took over {_PATCH_TIMEOUT_S} s", "Start again on a quieter machine"
        ) from error


def _patchelf() -> str:
    """The one installed beside this Python; else one on the PATH."""
    beside = Path(sys.executable).parent / "patchelf"
    found = str(beside) if beside.is_file() else shutil.which("patchelf")
    if found is None:
        raise BlasUnavailable("patchelf is not installed", "Install mlxq with its dependencies")
    return found


def _check(draft: Path) -> None:
    """The names MLX asks for must be there, or the copy would silently change nothing."""
    names = draft.read_bytes()
    for wanted in (b"\0cblas_sgemm\0", b"\0sgesdd_\0", b"\0openblas_get_config\0"):
        if wanted not in names:
            raise BlasUnavailable(
                f"the renamed copy lacks {wanted.strip(bytes(1)).decode()}",
                "Set worker.blas to none and report it",
            )


def _physical_cores(cpus: Iterable[int]) -> int:
    """Distinct cores among these logical processors; each counts alone where that is not told."""
    cores: set[tuple[str, str]] = set()
    for cpu in cpus:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            package = (topology / "physical_package_id").read_text().strip()
            core = (topology / "core_id").read_text().strip()
        except OSError:
            package, core = "?", str(cpu)
        cores.add((package, core))
    return len(cores)
