"""What `mlxq doctor` says about the store."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import doctor as module
from app.cli.main import cli
from tests.integration.storage.making import opened
from tests.integration.storage.verify.history import make_history
from tests.integration.storage.verify.test_verify import plant


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory; nothing else of the machine is examined."""

    def nothing(_settings: object) -> list[module.Check]:
        return []

    def fine(_settings: object) -> module.Check:
        return module.Check("models", "fine", "")

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_worker", nothing)
    monkeypatch.setattr(module, "_disk", nothing)
    monkeypatch.setattr(module, "_models", fine)
    return tmp_path / "data"


def doctor(data_dir: Path) -> Result:
    return CliRunner().invoke(cli, ["doctor", "--data-dir", str(data_dir)])


def lines(result: Result) -> list[str]:
    """What it says about the store."""
    return [line for line in result.output.splitlines() if line.split()[1] == "store"]


def test_before_the_first_start_nothing_is_stored_and_nothing_is_made(data_dir: Path) -> None:
    result = doctor(data_dir)
    assert lines(result) == ["fine     store      nothing is stored yet"]
    assert (result.exit_code, data_dir.exists()) == (0, False)


async def test_a_store_that_is_right_is_fine_also_while_a_server_has_it(data_dir: Path) -> None:
    await make_history(data_dir)
    async with opened(data_dir):
        result = doctor(data_dir)
    assert lines(result) == ["fine     store      8 jobs checked, 0 violations"]
    assert result.exit_code == 0


async def test_violations_are_listed_and_are_a_problem(data_dir: Path) -> None:
    await make_history(data_dir)
    plant(data_dir / "mlxq.db", "DELETE FROM report WHERE subject = :one")
    result = doctor(data_dir)
    assert result.exit_code == 1
    first, second, third, fourth = lines(result)
    assert "8 jobs checked, 3 violations -> Keep a copy of" in first
    assert "I3: job_00000000000000000000000000000001 has ended, but has no report" in second
    assert "feed: job_" in third
    assert "feed: feed counts" in fourth


@pytest.mark.parametrize(
    ("version", "status", "says"),
    [(1, 0, "the next start converts it"), (9999, 1, "Install the version that wrote it")],
)
async def test_a_store_of_another_schema_is_not_judged(
    data_dir: Path, version: int, status: int, says: str
) -> None:
    await make_history(data_dir)
    with closing(sqlite3.connect(data_dir / "mlxq.db")) as driver:
        driver.execute(f"PRAGMA user_version = {version}")
    result = doctor(data_dir)
    assert says in lines(result)[0]
    assert result.exit_code == status


def test_a_file_that_is_no_database_is_a_problem(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "mlxq.db").write_text("a shopping list, somewhat long to be a database header" * 9)
    result = doctor(data_dir)
    assert "file is not a database -> Restore a backup" in lines(result)[0]
    assert result.exit_code == 1
