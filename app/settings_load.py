"""Read the settings: flag > environment > file > default, each value with where it came from.

Nothing is guessed: an unknown key, an unknown `MLXQ_` variable, a wrong type or a value out of
range stops the program with the key, the place it was read from and what to do about it.
"""

import difflib
import ipaddress
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, cast, get_args, get_origin

import msgspec
import platformdirs
from msgspec import Struct

from app.domain.addresses import networks
from app.settings import APP_NAME, Settings
from app.settings_keys import Key, Loaded, Origin, Override, SettingsError, keys

CONFIG_VARIABLE = "MLXQ_CONFIG"
# Variables of ours that are no settings.
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "MLXQ_REQUIRE_MODEL", "MLXQ_URL"})

# Settings with a flag of their own on `mlxq serve`.
FLAGS = {
    "server.host": "--host",
    "server.port": "--port",
    "models.default": "--model",
    "storage.data_dir": "--data-dir",
    "log.level": "--log-level",
}


class _Given(Struct, frozen=True):
    """A raw value on its way in. Text is converted by the key's type, a TOML value is not."""

    value: object
    origin: Origin
    base: Path
    text: bool


def default_config_path() -> Path:
    """The file read when neither `--config` nor MLXQ_CONFIG names one."""
    return platformdirs.user_config_path(APP_NAME, appauthor=False) / "config.toml"


def load(
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[Override] = (),
) -> Loaded:
    """Read everything.

    Raises SettingsError on the first value that cannot be used.
    """
    env = os.environ if environ is None else environ
    known = {key.full: key for key in keys()}
    path = _config_path(config, env)
    given: dict[str, _Given] = {}
    if path is not None:
        given.update(_from_file(path, known))
    given.update(_from_environment(env, known))
    given.update(_from_flags(overrides, known))
    settings = _build(known, given)
    origins = {full: given[full].origin if full in given else Origin("default") for full in known}
    _check_together(settings, origins)
    return Loaded(settings, origins, path)


def flag_overrides(named: Mapping[str, object], sets: Iterable[str] = ()) -> list[Override]:
    """Turn flags into overrides: `{"server.port": 1}` (None: not given) and `section.key=value`.

    A named flag wins over `--set` of the same key. Raises SettingsError when a `--set` has no `=`.
    """
    out: list[Override] = []
    for text in sets:
        key, sign, value = text.partition("=")
        if not sign:
            origin = Origin("flag", f"--set {text}")
            raise SettingsError(text, origin, "there is no `=`", "Write --set section.key=value")
        out.append(Override(key.strip(), value, f"--set {key.strip()}"))
    out += [Override(key, str(v), FLAGS.get(key, key)) for key, v in named.items() if v is not None]
    return out


def _config_path(config: Path | None, env: Mapping[str, str]) -> Path | None:
    """The file to read. One that was named must exist; the usual one may be absent."""
    if config is not None:
        return _must_exist(config, Origin("flag", "--config"))
    if named := env.get(CONFIG_VARIABLE):
        return _must_exist(Path(named), Origin("environment", CONFIG_VARIABLE))
    usual = default_config_path()
    return usual if usual.is_file() else None


def _must_exist(path: Path, origin: Origin) -> Path:
    path = path.expanduser().absolute()
    if not path.is_file():
        raise SettingsError(
            str(path), origin, "there is no such file", "Name an existing TOML file"
        )
    return path


def _from_file(path: Path, known: Mapping[str, Key]) -> dict[str, _Given]:
    origin = Origin("file", str(path))
    try:
        document: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), origin, f"not TOML: {error}", "Correct the file") from error
    except OSError as error:
        raise SettingsError(str(path), origin, str(error), "Make the file readable") from error
    given: dict[str, _Given] = {}
    for section, table in document.items():
        if not isinstance(table, dict):
            raise _unknown(section, origin, known, "Settings stand in sections, as [server]")
        for name, value in cast("dict[str, object]", table).items():
            full = f"{section}.{name}"
            if full not in known:
                raise _unknown(full, origin, known)
            given[full] = _Given(value, origin, path.parent, text=False)
    return given


def _from_environment(env: Mapping[str, str], known: Mapping[str, Key]) -> dict[str, _Given]:
    by_variable = {key.variable: key for key in known.values()}
    given: dict[str, _Given] = {}
    for variable, value in env.items():
        if not variable.startswith("MLXQ_") or variable in OTHER_VARIABLES:
            continue
        origin = Origin("environment", variable)
        if variable not in by_variable:
            cure = (
                _suggestion(variable, by_variable) or "Unset it; `mlxq config show` lists the keys"
            )
            raise SettingsError(variable, origin, "no such setting", cure)
        given[by_variable[variable].full] = _Given(value, origin, Path.cwd(), text=True)
    return given


def _from_flags(overrides: Iterable[Override], known: Mapping[str, Key]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for override in overrides:
        origin = Origin("flag", override.flag)
        if override.key not in known:
            raise _unknown(override.key, origin, known)
        given[override.key] = _Given(override.value, origin, Path.cwd(), text=True)
    return given


def _unknown(name: str, origin: Origin, known: Iterable[str], cure: str = "") -> SettingsError:
    cure = cure or _suggestion(name, known) or "Remove it; `mlxq config show` lists the keys"
    return SettingsError(name, origin, "no such setting", cure)


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else ""


def _build(known: Mapping[str, Key], given: Mapping[str, _Given]) -> Settings:
    sections: dict[str, dict[str, object]] = {}
    for full, raw in given.items():
        key = known[full]
        sections.setdefault(key.section, {})[key.name] = _converted(key, raw)
    made = {
        item.name: item.type(**sections[item.name])
        for item in msgspec.structs.fields(Settings)
        if item.name in sections
    }
    return Settings(**made)


def _converted(key: Key, raw: _Given) -> object:
    """The value as the key's type, or a SettingsError that says what was wanted."""

    def hook(kind: type, value: object) -> object:
        if kind is Path and isinstance(value, str) and value:
            return (raw.base / Path(value).expanduser()).absolute()
        raise msgspec.ValidationError("Expected a path")

    value = raw.value
    if raw.text and key.type.__origin__ == list[str]:
        value = [part.strip() for part in str(value).split(",") if part.strip()]
    choices = _choices(key)
    if choices and value not in choices:
        problem = f"{value!r} is none of {', '.join(choices)}"
        raise SettingsError(key.full, raw.origin, problem, f"It is: {key.description}")
    try:
        made: object = msgspec.convert(value, key.type, strict=not raw.text, dec_hook=hook)
    except msgspec.ValidationError as error:
        wanted = str(error).split(" - at ", maxsplit=1)[0]
        problem = f"{value!r} cannot be used: {wanted}"
        raise SettingsError(key.full, raw.origin, problem, f"It is: {key.description}") from error
    if isinstance(made, float) and not math.isfinite(made):
        problem = f"{value!r} is not a finite number"
        raise SettingsError(key.full, raw.origin, problem, f"It is: {key.description}")
    return made


def _choices(key: Key) -> tuple[str, ...]:
    kind = get_args(key.type)[0]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _check_together(settings: Settings, origins: Mapping[str, Origin]) -> None:
    """Rules that no single type can hold."""
    host = settings.server.host
    if not _is_loopback(host):
        raise SettingsError(
            "server.host",
            origins["server.host"],
            f"{host!r} is not a loopback address and there are no access keys yet",
            "Use 127.0.0.1 or ::1, and a reverse proxy or an SSH tunnel to reach it from elsewhere",
        )
    worker = settings.worker
    if worker.heartbeat_timeout_s <= worker.heartbeat_interval_s:
        raise SettingsError(
            "worker.heartbeat_timeout_s",
            origins["worker.heartbeat_timeout_s"],
            f"{worker.heartbeat_timeout_s:g} s is not longer than worker.heartbeat_interval_s",
            "Set it to several intervals",
        )
    try:
        networks(settings.webhooks.allowed_networks)
    except ValueError as error:
        raise SettingsError(
            "webhooks.allowed_networks",
            origins["webhooks.allowed_networks"],
            str(error),
            "Write `loopback`, `private`, or a network as 10.1.0.0/16",
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
