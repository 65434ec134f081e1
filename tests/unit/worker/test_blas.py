"""The optimised BLAS: what is said when it cannot be had (loaded in tests/integration)."""

import sys
from pathlib import Path

import pytest

from worker import blas

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the Mac has Accelerate")


@linux_only
def test_none_leaves_the_bundled_one_and_says_so(tmp_path: Path) -> None:
    report = blas.load("none", 1, tmp_path)
    assert (report.kind, report.threads) == ("bundled", 1)
    assert report.cure is not None


@linux_only
def test_a_missing_package_is_told_with_auto_and_raised_with_openblas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas, "PACKAGE", "no-such-package-of-mlxq")
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)
    report = blas.load("auto", 1, tmp_path)
    assert report.kind == "bundled"
    assert "no-such-package-of-mlxq is not installed" in (report.cure or "")
    with pytest.raises(blas.BlasUnavailable, match="not installed"):
        blas.load("openblas", 1, tmp_path)


@linux_only
def test_a_failing_patchelf_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_patchelf", lambda: "/bin/false")
    with pytest.raises(blas.BlasUnavailable, match="patchelf failed"):
        blas.prepare(tmp_path)
    assert not list(tmp_path.rglob(blas.COPY))
    assert not list(tmp_path.rglob("making-*"))


@linux_only
def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "blas").write_text("in the way")
    with pytest.raises(blas.BlasUnavailable, match="cannot write"):
        blas.prepare(tmp_path)


@linux_only
def test_there_is_always_at_least_one_thread() -> None:
    assert blas.default_threads() >= 1
