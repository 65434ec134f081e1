"""The default model as a directory of dense float32 weights, for `mlx_lm.server`.

A worker makes a quantized model dense when it loads it on the CPU; `mlx_lm.server` computes with
the directory as it is. So that both compute the same, the dense weights are written once, in the
same two steps: `python -m benchmarks.serving.dense_model SOURCE TARGET`.
"""
# mlx-lm is hardly annotated.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_TIMEOUT_S = 600


def dense_model(source: Path, cache_dir: Path) -> Path:
    """The directory, made if it is not there. Raises subprocess.CalledProcessError."""
    weights = source / "model.safetensors"
    stat = weights.stat()
    mark = hashlib.sha256(f"{source} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = cache_dir / f"{source.name}-float32-{mark}"
    if not target.is_dir():
        print(f"writing float32 weights to {target}", file=sys.stderr)
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        command = [sys.executable, "-m", "benchmarks.serving.dense_model", str(source), str(draft)]
        try:
            subprocess.run(command, check=True, timeout=_TIMEOUT_S)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return target


def write(source: Path, target: Path) -> None:
    """Unpack, convert, save; all but weights and config is copied as it is. Imports MLX."""
    import mlx.core as mx
    from mlx_lm.utils import dequantize_model, load_model, save_config, save_model

    model, config = load_model(source, lazy=True)
    model = dequantize_model(model)
    model.set_dtype(mx.float32)
    for key in ("quantization", "quantization_config"):
        config.pop(key, None)
    save_model(target, model)
    save_config(config, target / "config.json")
    for file in source.iterdir():
        if file.is_file() and file.name != "config.json" and "safetensors" not in file.name:
            shutil.copyfile(file, target / file.name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
