"""From a model directory to weights in memory, and what is to be known about them.

Only directories are loaded: mlx-lm takes any other name for a hub repository and downloads it.
Custom code of a model is never run.

On the CPU weights become dense float32: quantized products there are scalar loops and 16-bit ones
have no optimised library, both tens of times slower than float32 through an optimised BLAS. On a
GPU a model keeps its own dtype and quantization.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import mlx.core as mx

from shared.launch import EngineSettings
from worker.engine.upstream import (
    LanguageModel,
    dequantize_model,
    flatten_tree,
    load_model,
)

_CONTEXT_KEYS: Final = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
)  # fmt: skip
_CONTEXT_TOKENS_UNKNOWN: Final = 4_096
"""For the rare config that names no length."""

_EVAL_BYTES: Final = 64 * 1024 * 1024
"""Weights computed in one go while loading: small enough for a lively progress."""

_DTYPES: Final = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, its config, where and in which dtype it computes, and whether quantized
    weights were made dense."""

    model: LanguageModel
    config: dict[str, Any]
    device: str
    dtype: str
    dense: bool


def choose_device(wish: str) -> str:
    """Make the wished device MLX's default and return its kind.

    Raises:
        ValueError: when a GPU is wished for and there is none.
    """
    has_gpu = mx.is_available(mx.Device(mx.gpu))
    if wish == "gpu" and not has_gpu:
        raise ValueError("there is no GPU that MLX can use")
    kind = "gpu" if has_gpu and wish != "cpu" else "cpu"
    mx.set_default_device(mx.Device(mx.gpu if kind == "gpu" else mx.cpu))
    return kind


def load(settings: EngineSettings, on_progress: Callable[[int, int], None]) -> LoadedModel:
    """Load the model directory of these settings.

    Raises:
        FileNotFoundError: when there is no such directory, config or weights.
        ValueError: when the model is of a kind that is not supported.
    """
    path = model_directory(settings.model_path)
    device = choose_device(settings.device)
    model: LanguageModel
    config: dict[str, Any]
    model, config = load_model(path, lazy=True, trust_remote_code=False)
    dense = settings.dequantize == "always" or (settings.dequantize == "auto" and device == "cpu")
    if dense:
        model = dequantize_model(model)
    wished = settings.dtype
    if wished == "auto" and device == "cpu":
        wished = "float32"
    if wished != "auto":
        model.set_dtype(_DTYPES[wished])
    _compute(model, on_progress)
    model.eval()
    return LoadedModel(model, config, device, _dtype_name(model), dense)


def model_directory(name: str) -> Path:
    """The directory, if it is one that holds a model.

    Raises:
        FileNotFoundError: otherwise.
    """
    path = Path(name)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is no directory")
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"{path} holds no config.json: it is no model directory")
    return path


def _compute(model: LanguageModel, on_progress: Callable[[int, int], None]) -> None:
    """Read and convert the weights in portions, saying how far that is."""
    arrays = _arrays(model)
    total = sum(array.nbytes for array in arrays)
    done = 0
    on_progress(done, total)
    for portion in _portions(arrays):
        mx.eval(portion)
        done += sum(array.nbytes for array in portion)
        on_progress(done, total)
    mx.clear_cache()


def _portions(arrays: list[mx.array]) -> Iterator[list[mx.array]]:
    portion: list[mx.array] = []
    size = 0
    for array in arrays:
        portion.append(array)
        size += array.nbytes
        if size >= _EVAL_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _arrays(model: LanguageModel) -> list[mx.array]:
    return [array for _, array in flatten_tree(model.parameters())]


def _dtype_name(model: LanguageModel) -> str:
    """The dtype that most floating-point bytes of the model have."""
    sizes: dict[str, int] = {}
    for array in _arrays(model):
        if mx.issubdtype(array.dtype, mx.floating):
            name = str(array.dtype).rpartition(".")[2]
            sizes[name] = sizes.get(name, 0) + array.nbytes
    return max(sizes, key=lambda name: sizes[name])


def context_tokens(config: dict[str, Any], cap: int) -> int:
    """The model's context length, capped by the setting unless that is 0."""
    own = next((config[key] for key in _CONTEXT_KEYS if config.get(key)), None)
    if own is None:
        text = cast("dict[str, Any]", config.get("text_config") or {})
        own = next((text[key] for key in _CONTEXT_KEYS if text.get(key)), None)
    length = int(own or _CONTEXT_TOKENS_UNKNOWN)
    return min(length, cap) if cap else length


def vocab_size(config: dict[str, Any], of_tokenizer: int) -> int:
    """Tokens the model can be fed; its embedding is often larger than its tokenizer."""
    text = cast("dict[str, Any]", config.get("text_config") or config)
    return int(text.get("vocab_size") or of_tokenizer)


def eos_tokens(config: dict[str, Any]) -> frozenset[int]:
    """End-of-sequence ids that config and generation config name."""
    named: int | list[int] | None = config.get("eos_token_id")
    if named is None:
        return frozenset()
    return frozenset([named] if isinstance(named, int) else named)


def kv_bytes_per_token(config: dict[str, Any], dtype: str) -> int:
    """Bytes of keys and values that one more token of one row takes: an estimate from the config,
    exact for models with full attention in every layer."""
    text = cast("dict[str, Any]", config.get("text_config") or config)
    layers = int(text.get("num_hidden_layers") or 0)
    heads = int(text.get("num_attention_heads") or 0)
    kv_heads = int(text.get("num_key_value_heads") or heads)
    head_dim = int(text.get("head_dim") or (int(text.get("hidden_size") or 0) // max(heads, 1)))
    return 2 * layers * kv_heads * head_dim * (4 if dtype == "float32" else 2)
