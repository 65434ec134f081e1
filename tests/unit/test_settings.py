"""Settings: which source wins, and what is said about a value that cannot be used."""

from pathlib import Path

import pytest

from app.settings import Settings, hub_cache_dir
from app.settings_keys import Override, SettingsError, keys
from app.settings_load import flag_overrides, load


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def no_file_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_nothing_given_is_the_defaults() -> None:
    loaded = load(environ={})
    assert loaded.settings == Settings()
    assert {origin.kind for origin in loaded.origins.values()} == {"default"}
    assert loaded.config_path is None


def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "c.toml", "[server]\nport = 1\nhost = '::1'\n[worker]\nrows = 3\n")
    environ = {"MLXQ_SERVER_PORT": "2", "MLXQ_WORKER_ROWS": "4"}
    loaded = load(config=file, environ=environ, overrides=flag_overrides({"server.port": 5}))
    assert (loaded.settings.server.port, loaded.settings.worker.rows) == (5, 4)
    assert loaded.settings.server.host == "::1"
    assert str(loaded.origins["server.port"]) == "flag --port"
    assert str(loaded.origins["worker.rows"]) == "environment MLXQ_WORKER_ROWS"
    assert str(loaded.origins["server.host"]) == f"file {file}"
    assert str(loaded.origins["log.level"]) == "default"


def test_the_file_is_found_in_the_users_configuration_folder(tmp_path: Path) -> None:
    (tmp_path / "config" / "mlxq").mkdir(parents=True)
    file = write(tmp_path / "config" / "mlxq" / "config.toml", "[log]\nlevel = 'debug'\n")
    loaded = load(environ={})
    assert loaded.config_path == file
    assert loaded.settings.log.level == "debug"


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.toml", "[queue]\ndeadline_s = 60\n")
    assert load(environ={"MLXQ_CONFIG": str(file)}).settings.queue.deadline_s == 60.0


@pytest.mark.parametrize("environ", [{"MLXQ_CONFIG": "/no/such.toml"}])
def test_a_named_file_must_exist(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"/no/such.toml \(environment MLXQ_CONFIG\)"):
        load(environ=environ)


def test_a_named_flag_wins_over_set_of_the_same_key() -> None:
    overrides = flag_overrides({"server.port": 7, "server.host": None}, ["server.port=8"])
    assert load(environ={}, overrides=overrides).settings.server.port == 7


def test_lists_are_separated_by_commas_in_text(tmp_path: Path) -> None:
    environ = {"MLXQ_SERVER_ALLOWED_HOSTS": "a.example, b.example"}
    assert load(environ=environ).settings.server.allowed_hosts == ["a.example", "b.example"]
    file = write(tmp_path / "c.toml", "[server]\nallowed_hosts = ['c']\n")
    assert load(config=file, environ={}).settings.server.allowed_hosts == ["c"]


def test_a_relative_path_in_the_file_is_relative_to_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", "[storage]\ndata_dir = 'here'\ncache_dir = '~/there'\n")
    storage = load(config=file, environ={}).settings.storage
    assert storage.data_dir == tmp_path / "here"
    assert storage.cache_dir == tmp_path / "there"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nprot = 1\n", r"server\.prot \(file .*\): no such setting\. Did you mean"),
        ("[sever]\nport = 1\n", r"sever\.port .*: no such setting\. Did you mean server\.port"),
        ("port = 1\n", r"port .*: no such setting\. Settings stand in sections"),
        ("[server]\nport = '1'\n", r"server\.port .*Expected `int`, got `str`\. It is: Port"),
        ("[server]\nport = 70000\n", r"70000 cannot be used: Expected `int` <= 65535"),
        ("[server]\nport = true\n", r"server\.port .*Expected `int`"),
        ("[worker]\ndtype = 'int8'\n", r"'int8' is none of auto, float32, bfloat16, float16"),
        ("[worker]\nrows = 0\n", r"worker\.rows .*Expected `int` >= 1"),
        ("[queue]\ndeadline_s = inf\n", r"queue\.deadline_s .*"),
        ("[storage]\ndata_dir = 3\n", r"storage\.data_dir .*"),
        ("[server]\nallowed_hosts = 'a'\n", r"server\.allowed_hosts .*Expected `array`"),
        ("server = [", r"not TOML: .*Correct the file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_key_place_and_cure(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        load(config=write(tmp_path / "c.toml", text), environ={})


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MLXQ_SERVER_PRT", "1", "Did you mean MLXQ_SERVER_PORT"),
        ("MLXQ_NONSENSE", "1", "no such setting. Unset it"),
        ("MLXQ_SERVER_PORT", "many", "environment MLXQ_SERVER_PORT"),
        ("MLXQ_QUEUE_DEADLINE_S", "nan", "queue.deadline_s"),
        ("MLXQ_SERVER_KEEPALIVE_INTERVAL_S", "", "server.keepalive_interval_s"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused(variable: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load(environ={variable: value})


def test_an_unknown_flag_key_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"worker\.row .*Did you mean worker\.rows"):
        load(environ={}, overrides=[Override("worker.row", "1", "--set worker.row")])
    with pytest.raises(SettingsError, match="there is no `=`"):
        flag_overrides({}, ["worker.rows"])


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "example.org", ""])  # noqa: S104
def test_only_loopback_addresses_are_served(host: str) -> None:
    with pytest.raises(SettingsError, match="not a loopback address"):
        load(environ={"MLXQ_SERVER_HOST": host})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_every_loopback_address_is_served(host: str) -> None:
    assert load(environ={"MLXQ_SERVER_HOST": host}).settings.server.host == host


def test_a_heartbeat_timeout_must_be_longer_than_the_interval() -> None:
    with pytest.raises(SettingsError, match=r"worker\.heartbeat_timeout_s"):
        load(environ={"MLXQ_WORKER_HEARTBEAT_TIMEOUT_S": "1"})


def test_every_setting_has_a_description_and_its_own_variable() -> None:
    found = keys()
    assert all(key.description for key in found)
    assert len({key.variable for key in found}) == len(found)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
    ],
)
def test_the_hub_cache_is_where_the_hubs_own_clients_have_it(
    environ: dict[str, str], wanted: str
) -> None:
    assert hub_cache_dir(environ) == Path(wanted)
