"""Find and fetch one wheel the way pip does, with what pip was configured with on this machine.

pip is asked where the file is (`--dry-run --report`), and the file is fetched by `download.fetch`,
which resumes and tells its progress. Where that does not work, as with an index that wants a login,
pip downloads it itself.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import cast

from msgspec import Struct

from app.catalogue.download import DownloadFailed, Progress, digest, fetch

RESOLVE_TIMEOUT_S = 300
DOWNLOAD_TIMEOUT_S = 3600


class Wheel(Struct, frozen=True):
    """One file on the package index, pinned by digest."""

    requirement: str
    filename: str
    sha256: str
    size: int


def fetch_wheel(wheel: Wheel, directory: Path, progress: Progress) -> Path:
    """The wheel in `directory`, taken as it is when already whole. Raises DownloadFailed."""
    target = directory / wheel.filename
    if target.is_file() and digest(target) == wheel.sha256:
        return target
    directory.mkdir(parents=True, exist_ok=True)
    url = _resolve(wheel)
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in {"http", "https"}:
        try:
            fetch(url, target, sha256=wheel.sha256, size=wheel.size, progress=progress)
        except DownloadFailed as error:
            _by_pip(wheel, directory, because=error)
    else:
        _by_pip(wheel, directory, because=None)
    return target


def _resolve(wheel: Wheel) -> str:
    """Where pip would take the wheel from. Raises DownloadFailed."""
    arguments = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = _pip([*arguments, *_selection(wheel)], RESOLVE_TIMEOUT_S)
    if done.returncode != 0:
        raise DownloadFailed(f"pip finds no {wheel.requirement}: {_last_line(done.stderr)}")
    try:
        report = json.loads(done.stdout)
        return cast("str", report["install"][0]["download_info"]["url"])
    except (ValueError, LookupError, TypeError) as error:
        raise DownloadFailed(f"pip's report on {wheel.requirement} is not understood") from error


def _by_pip(wheel: Wheel, directory: Path, because: DownloadFailed | None) -> None:
    with tempfile.TemporaryDirectory(dir=directory, prefix="pip-") as place:
        arguments = ["download", "--quiet", "--dest", place, *_selection(wheel)]
        done = _pip(arguments, DOWNLOAD_TIMEOUT_S)
        if done.returncode != 0:
            said = str(because) if because else _last_line(done.stderr)
            raise DownloadFailed(f"{wheel.requirement} could not be downloaded: {said}")
        made = Path(place) / wheel.filename
        if not made.is_file() or digest(made) != wheel.sha256:
            raise DownloadFailed(f"{wheel.filename} does not have the digest mlxq was written for")
        made.replace(directory / wheel.filename)


def _selection(wheel: Wheel) -> list[str]:
    return ["--no-deps", "--only-binary", ":all:", wheel.requirement]


def _pip(arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", "pip", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadFailed(f"pip gave no answer within {timeout_s:g} s") from error


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1].removeprefix("ERROR: ") if lines else "it gave no reason"
