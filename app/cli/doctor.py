"""`mlxq doctor`: is this machine ready, and if not, what helps."""

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from app.catalogue.entries import Catalogue
from app.cli.context import FAILED, config_file, print_json
from app.cli.doctor_webhooks import check_webhooks
from app.cli.findings import Check
from app.settings import Settings
from app.settings_keys import SettingsError
from app.settings_load import flag_overrides, load

WORKER_TIMEOUT_S = 180
DISK_FREE_BYTES_MIN = 1 << 30
VIOLATIONS_SHOWN_MAX = 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="As given to `mlxq serve`.")
@click.pass_context
def doctor(context: click.Context, as_json: bool, data_dir: Path | None) -> None:
    """Examine Python, settings, disk, models, SQLite, the store, MLX and the matrix library.

    The store's rules are proved on every job in it; a server may run meanwhile.

    Exit status 0: all is well; 1: there are problems, each with its cure.
    """
    settings, checks = _settings(context, data_dir)
    checks += [_python(), *_disk(settings), _models(settings), _sqlite(), *_store(settings)]
    checks += _worker(settings)
    if as_json:
        print_json({"ok": all(c.state == "fine" for c in checks), "checks": checks})
    else:
        for check in checks:
            cure = f" -> {check.cure}" if check.cure else ""
            click.echo(f"{check.state:<8} {check.name:<10} {check.detail}{cure}")
    sys.exit(FAILED if any(c.state == "problem" for c in checks) else 0)


def _settings(context: click.Context, data_dir: Path | None) -> tuple[Settings, list[Check]]:
    """The settings; the defaults, and a problem, when they cannot be read."""
    try:
        flags = flag_overrides({"storage.data_dir": data_dir})
        loaded = load(config=config_file(context), overrides=flags)
    except SettingsError as error:
        check = Check(
            "settings", "problem", f"{error.key} ({error.origin}): {error.problem}", error.cure
        )
        return Settings(), [check]
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    where = loaded.config_path or "no file"
    return loaded.settings, [Check("settings", "fine", f"{where}, {changed} not default")]


def _python() -> Check:
    return Check("python", "fine", f"{platform.python_version()} on {platform.platform()}")


def _disk(settings: Settings) -> list[Check]:
    places = {"data": settings.storage.data_dir, "cache": settings.storage.cache_dir}
    return [_place(name, path) for name, path in places.items()]


def _place(name: str, path: Path) -> Check:
    """The directory, or the nearest one above it that is there: writable, with room."""
    existing = next(p for p in (path, *path.parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Check(name, "problem", f"{path} cannot be written", f"Set storage.{name}_dir")
    free = shutil.disk_usage(existing).free
    detail = f"{path}, {free / 1e9:.1f} GB free"
    if free < DISK_FREE_BYTES_MIN:
        return Check(name, "problem", detail, f"Free some space or move storage.{name}_dir")
    return Check(name, "fine", detail)


def _models(settings: Settings) -> Check:
    catalogue = Catalogue.of(settings)
    found = [entry.id for entry in catalogue.list()]
    wanted = settings.models.default
    detail = f"{len(found)} found ({', '.join(found[:5]) or 'none'}), default {wanted}"
    if settings.worker.engine == "mlx" and catalogue.find(wanted) is None:
        return Check("models", "problem", detail, f"Run `mlxq models pull {wanted}`")
    return Check("models", "fine", detail)


def _sqlite() -> Check:
    # The WAL-reset fault before 3.51.3 needs two connections that checkpoint; mlxq has one.
    return Check("sqlite", "fine", sqlite3.sqlite_version)


def _store(settings: Settings) -> list[Check]:
    """Whether all that is stored can be."""
    from app.storage.database import DATABASE_NAME
    from app.storage.errors import OtherSchema
    from app.storage.verify import verify_file

    path = settings.storage.data_dir / DATABASE_NAME
    if not path.exists():
        return [Check("store", "fine", "nothing is stored yet")]
    try:
        verdict = verify_file(path)
    except OtherSchema as error:
        if error.found < error.ours:
            return [Check("store", "fine", f"{error}: the next start converts it")]
        return [Check("store", "problem", str(error), "Install the version that wrote it")]
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter quotes what is damaged
        return [Check("store", "problem", f"{path}: {error}", "Restore a backup of it")]
    found = [f"{v.invariant}: {v.subject} {v.message}" for v in verdict.violations]
    checked = f"{verdict.jobs} jobs checked, {len(found)} violations"
    if not found:
        return [Check("store", "fine", checked), *check_webhooks(path)]
    listed = [Check("store", "problem", detail) for detail in found[:VIOLATIONS_SHOWN_MAX]]
    return [Check("store", "problem", checked, f"Keep a copy of {path} and report this"), *listed]


def _worker(settings: Settings) -> list[Check]:
    """Ask a process that may import MLX."""
    worker = settings.worker
    command = [sys.executable, "-P", "-m", "worker.doctor", "--json", "--blas", worker.blas]
    command += ["--threads", str(worker.blas_threads)]
    command += ["--cache-dir", str(settings.storage.cache_dir)]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=WORKER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return [Check("mlx", "problem", f"no answer within {WORKER_TIMEOUT_S} s", "Try again")]
    try:
        return _worker_checks(msgspec.json.decode(done.stdout))
    except msgspec.DecodeError:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return [Check("mlx", "problem", lines[-1], "Install mlxq with its dependencies again")]


def _worker_checks(report: dict[str, Any]) -> list[Check]:
    blas: dict[str, Any] = report["blas"]
    problems: list[str] = report["problems"]
    mlx = f"mlx {report['mlx']}, mlx-lm {report['mlx_lm']}, device {report['device']}"
    matrix = (
        f"{blas['version'] or blas['kind']}, {blas['threads']} threads, {report['gflops']} GFLOP/s"
    )
    compiler = report["compiler"] or "no g++: MLX runs unfused kernels, a little slower"
    return [
        Check("mlx", "fine", mlx),
        Check("blas", "problem" if problems else "fine", matrix, "; ".join(problems)),
        Check("compiler", "fine", compiler),
    ]
