"""The optimised BLAS for real, each time in a process of its own: what is loaded stays loaded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Mac has Accelerate")

PRODUCT = """
import sys, time
from pathlib import Path
from worker import blas
report = blas.load("openblas", 1, Path(sys.argv[1]))
import mlx.core as mx, numpy as np
mx.set_default_device(mx.cpu)
rng = np.random.default_rng(1)
a = rng.standard_normal((512, 576), dtype=np.float32)
b = rng.standard_normal((576, 1536), dtype=np.float32)
error = float(np.abs(np.array(mx.array(a) @ mx.array(b)) - a @ b).max())
values = np.array(mx.linalg.svd(mx.array(a[:40, :40]), stream=mx.cpu)[1])
error = max(error, float(np.abs(values - np.linalg.svd(a[:40, :40])[1]).max()))
print(report.kind, report.threads, error)
"""


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], check=False, capture_output=True, text=True, timeout=60
    )
    assert not done.stderr, done.stderr
    return done.stdout


def test_products_and_lapack_through_the_renamed_copy_equal_numpys(tmp_path: Path) -> None:
    kind, threads, error = run("-c", PRODUCT, str(tmp_path)).split()
    assert (kind, threads) == ("openblas", "1")
    assert float(error) < 1e-3


def test_the_renamed_copy_is_many_times_faster(tmp_path: Path) -> None:
    def gflops(mode: str) -> float:
        command = ["-m", "worker.doctor", "--cache-dir", str(tmp_path), "--threads", "1"]
        report = json.loads(run(*command, "--json", "--blas", mode))
        assert report["blas"]["kind"] == ("bundled" if mode == "none" else "openblas")
        return float(report["gflops"])

    assert gflops("openblas") > 3 * gflops("none")


def test_two_workers_that_start_at_once_make_one_copy(tmp_path: Path) -> None:
    prepare = "import sys; from pathlib import Path; from worker import blas; "
    prepare += "print(blas.prepare(Path(sys.argv[1])))"
    command = [sys.executable, "-c", prepare, str(tmp_path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {worker.communicate(timeout=60)[0].strip() for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0]
    (path,) = said
    assert sorted(file.name for file in Path(path).parent.iterdir()) == [Path(path).name, "lock"]
