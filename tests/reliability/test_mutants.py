"""Each of the twelve faults is noticed by the suite that is named for it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.reliability.conftest import TOLD
from tests.reliability.counts import FIRST_VARIABLE, SCALE_VARIABLE, SEED_VARIABLE, SHRINK_VARIABLE
from tests.reliability.mutants import MACHINE, MUTANTS, SIMULATION, Mutant

ROOT: Final = Path(__file__).parents[2]
TREE: Final = ("app", "worker", "shared", "migrations", "tests")
NOTICED: Final = 1
"""pytest's exit status when tests have failed; others say that it could not run them."""


def tree(place: Path) -> Path:
    """A copy of the source."""
    for folder in TREE:
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def run(suite: str, root: Path) -> "subprocess.CompletedProcess[str]":
    """Run a suite of this tree at its small count, without making a failure small."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (SCALE_VARIABLE, SEED_VARIABLE, FIRST_VARIABLE) and "PYTEST" not in name
    }
    environment |= {SHRINK_VARIABLE: "0", "PYTHONPATH": str(root)}
    arguments = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", suite]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )


def test_every_mutant_fits_the_source() -> None:
    for edit in (edit for mutant in MUTANTS for edit in mutant.edits):
        assert (ROOT / edit.file).read_text(encoding="utf-8").count(edit.old) == 1, edit


@pytest.mark.torture
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_mutant_dies(
    tmp_path: Path, mutant: Mutant, record_property: Callable[[str, object], None]
) -> None:
    root = tree(tmp_path)
    for edit in mutant.edits:
        edit.make(root)
    ended = run(mutant.killer, root)
    said = ended.stdout[-4_000:]
    assert ended.returncode == NOTICED, f"{mutant.name} lives under {mutant.killer}:\n{said}"
    reason = next((line[1:].strip() for line in ended.stdout.splitlines() if line[:1] == "E"), "")
    assert "ImportError" not in reason, said
    record_property(TOLD, f"mutant: {mutant.name}: dies of {mutant.killer}: {reason[:120]}")


@pytest.mark.parametrize("suite", [MACHINE, SIMULATION])
def test_the_source_as_it_is_lives(tmp_path: Path, suite: str) -> None:
    """Or a mutant could die of the copying."""
    ended = run(suite, tree(tmp_path))
    assert ended.returncode == 0, ended.stdout[-4_000:]


def test_there_are_twelve() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) == 12
