"""The command line: what is printed where, and with which status it ends."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli.main import cli
from app.settings_keys import keys
from app.storage.lock import DirectoryLock
from tests.unit.catalogue.test_entries import make_hub_model, make_model


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing, whose hub cache and data lie under it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLXQ_STORAGE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MLXQ_STORAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MLXQ_MODELS_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, list(arguments), input=answer)


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["submit"],
        ["jobs"],
        ["jobs", "list"],
        ["jobs", "show", "x"],
        ["jobs", "retry", "x"],
        ["follow", "x"],
        ["cancel", "x"],
        ["drain"],
        ["resume"],
        ["models", "list"],
        ["config", "show"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_an_unknown_flag_is_an_error(home: Path, command: list[str]) -> None:
    result = run(*command, "--no-such-flag")
    assert result.exit_code == 2
    assert "No such option" in result.stderr


def test_config_show_prints_every_value_and_its_origin(home: Path) -> None:
    result = run("config", "show", "--json", "--set", "worker.rows=4")
    document = json.loads(result.stdout)
    assert set(document["settings"]) == {key.full for key in keys()}
    rows = document["settings"]["worker.rows"]
    assert (rows["value"], rows["origin"]) == (4, {"kind": "flag", "where": "--set worker.rows"})
    assert "port = 8000" in run("config", "show").stdout


def test_a_wrong_setting_is_one_line_and_status_2(home: Path) -> None:
    result = run("config", "show", "--set", "worker.rows=many")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "worker.rows (flag --set worker.rows): 'many' cannot be used" in result.stderr


def test_a_named_file_is_read(home: Path) -> None:
    file = home / "c.toml"
    file.write_text("[server]\nport = 9\n")
    document = json.loads(run("--config", str(file), "config", "show", "--json").stdout)
    assert document["file"] == str(file)
    assert document["settings"]["server.port"]["value"] == 9


def test_no_models_is_an_empty_list_with_a_hint_on_standard_error(home: Path) -> None:
    result = run("models", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mlxq models pull" in result.stderr
    assert json.loads(run("models", "list", "--json").stdout) == {"models": []}


def test_a_directory_is_registered_by_a_link_and_removed_without_touching_it(home: Path) -> None:
    source = make_model(home / "somewhere" / "tiny")
    pulled = run("models", "pull", str(source), "--json")
    assert json.loads(pulled.stdout)["id"] == "tiny"
    assert (home / "data" / "models" / "tiny").is_symlink()
    assert run("models", "pull", str(source)).exit_code == 0
    assert json.loads(run("models", "show", "tiny", "--json").stdout)["source"] == "local"
    assert run("models", "rm", "tiny", "--yes").exit_code == 0
    assert (source / "config.json").is_file()
    assert json.loads(run("models", "list", "--json").stdout) == {"models": []}


def test_a_directory_can_be_copied_and_its_copy_removed(home: Path) -> None:
    source = make_model(home / "somewhere" / "tiny")
    assert run("models", "pull", "--copy", str(source)).exit_code == 0
    copy = home / "data" / "models" / "tiny"
    assert copy.is_dir()
    assert not copy.is_symlink()
    assert run("models", "rm", "tiny", "--yes").exit_code == 0
    assert not copy.exists()
    assert source.is_dir()


def test_another_model_of_the_same_name_is_not_replaced(home: Path) -> None:
    run("models", "pull", str(make_model(home / "a" / "tiny")))
    result = run("models", "pull", str(make_model(home / "b" / "tiny")))
    assert result.exit_code == 1
    assert "mlxq models rm tiny" in result.stderr


def test_a_directory_that_is_no_model_is_refused_with_what_is_missing(home: Path) -> None:
    (home / "empty").mkdir()
    result = run("models", "pull", str(home / "empty"))
    assert result.exit_code == 1
    assert "config.json is missing" in result.stderr


def test_an_unknown_model_is_one_line_that_says_what_works(home: Path) -> None:
    result = run("models", "pull", "nonsense")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "org/name" in result.stderr
    assert "smollm2-135m-instruct" in result.stderr


def test_removing_asks_first(home: Path) -> None:
    run("models", "pull", str(make_model(home / "somewhere" / "tiny")))
    assert run("models", "rm", "tiny", answer="n\n").exit_code == 1
    assert (home / "data" / "models" / "tiny").exists()
    assert run("models", "rm", "tiny", answer="y\n").exit_code == 0


def test_removing_says_that_a_server_is_running_here(home: Path) -> None:
    run("models", "pull", str(make_model(home / "somewhere" / "tiny")))
    lock = DirectoryLock.take(home / "data" / "lock", home / "data", datetime.now(UTC))
    try:
        result = run("models", "rm", "tiny", "--yes")
    finally:
        lock.release()
    assert result.exit_code == 0
    assert f"A server is running here (process {os.getpid()}" in result.stderr


def test_a_model_of_the_hub_cache_is_listed_but_never_removed(home: Path) -> None:
    snapshot = make_hub_model(home / "hub", "models--org--name")
    assert run("models", "list").stdout.startswith("org/name\t")
    result = run("models", "rm", "org/name", "--yes")
    assert result.exit_code == 1
    assert "not mlxq's" in result.stderr
    assert snapshot.is_dir()


def test_an_unknown_model_is_neither_shown_nor_removed(home: Path) -> None:
    for command in ("show", "rm"):
        result = run("models", command, "nonsense", *(["--yes"] if command == "rm" else []))
        assert result.exit_code == 1
        assert "no model 'nonsense'" in result.stderr


@pytest.mark.parametrize("status", ["0 done", "1 failed", "2 wrong", "3 no", "4 the", "130 inter"])
def test_the_help_names_every_exit_status(status: str) -> None:
    assert status in " ".join(run("--help").stdout.split())


def test_the_server_is_the_one_in_the_settings_unless_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLXQ_URL", raising=False)
    monkeypatch.setenv("MLXQ_SERVER_PORT", "1")
    assert "no server at http://127.0.0.1:1 " in run("resume").stderr
    monkeypatch.setenv("MLXQ_SERVER_HOST", "::1")
    assert "no server at http://[::1]:1 " in run("resume").stderr
    monkeypatch.setenv("MLXQ_URL", "http://localhost:2/")
    assert "no server at http://localhost:2 " in run("resume").stderr
    named = run("resume", "--url", "http://127.0.0.1:3/below")
    assert "no server at http://127.0.0.1:3/below " in named.stderr
    assert named.exit_code == 3


def test_a_port_that_is_any_one_is_no_address(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLXQ_URL", raising=False)
    monkeypatch.setenv("MLXQ_SERVER_PORT", "0")
    result = run("resume")
    assert result.exit_code == 2
    assert "--url" in result.stderr
