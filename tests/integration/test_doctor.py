"""`mlxq doctor` as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.catalogue.test_entries import make_model


def doctor(home: Path, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    environ = {
        **os.environ,
        "MLXQ_STORAGE_DATA_DIR": str(home / "data"),
        "MLXQ_STORAGE_CACHE_DIR": str(home / "cache"),
        "MLXQ_MODELS_HUB_CACHE": str(home / "hub"),
        "XDG_CONFIG_HOME": str(home),
        **variables,
    }
    command = [sys.executable, "-m", "app.cli.main", "doctor", "--json"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environ, timeout=60
    )
    assert not done.stderr, done.stderr
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {check["name"]: check for check in checks}


def test_a_machine_with_a_model_is_fine(tmp_path: Path) -> None:
    make_model(tmp_path / "data" / "models" / "tiny")
    _, checks = doctor(tmp_path, MLXQ_MODELS_DEFAULT="tiny")
    for name in ("settings", "python", "data", "cache", "models", "sqlite", "mlx"):
        assert checks[name]["state"] == "fine", checks[name]


def test_a_missing_model_and_a_slow_blas_are_problems_with_their_cures(tmp_path: Path) -> None:
    status, checks = doctor(tmp_path, MLXQ_WORKER_BLAS="none")
    assert status == 1
    assert "mlxq models pull smollm2-135m-instruct" in checks["models"]["cure"]
    if sys.platform == "linux":
        assert "worker.blas" in checks["blas"]["cure"]


def test_wrong_settings_are_a_problem_like_any_other(tmp_path: Path) -> None:
    status, checks = doctor(tmp_path, MLXQ_SERVER_PORT="many")
    assert status == 1
    assert "server.port" in checks["settings"]["detail"]
