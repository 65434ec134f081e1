"""Read a model directory without MLX: is it whole, and what does its configuration say."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from msgspec import Struct

INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
_TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What the files say. `context_tokens` is None when the configuration names no length."""

    model_type: str
    context_tokens: int | None
    quantization: str | None


class NotAModel(Exception):
    """The directory is no complete mlx-lm model. The message says what is missing."""


def read_model_dir(path: Path) -> ModelFacts:
    """Check that configuration, tokenizer and all weights are there. Raises NotAModel."""
    config = _json_object(path / "config.json")
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise NotAModel("config.json names no model_type")
    _check_tokenizer(path)
    _check_weights(path)
    return ModelFacts(
        model_type=model_type,
        context_tokens=_context_tokens(config),
        quantization=_quantization(config),
    )


def _json_object(path: Path) -> dict[str, object]:
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAModel(f"{path.name} is missing") from error
    except ValueError as error:
        raise NotAModel(f"{path.name} is not JSON") from error
    if not isinstance(value, dict):
        raise NotAModel(f"{path.name} is not a JSON object")
    return cast("dict[str, object]", value)


def _check_tokenizer(path: Path) -> None:
    if not any(all((path / name).is_file() for name in names) for names in _TOKENIZERS):
        raise NotAModel("there is no tokenizer.json or tokenizer.model")


def _check_weights(path: Path) -> None:
    """Every shard that the index, or else the shards' own numbering, speaks of."""
    if (path / INDEX).exists():
        weight_map = _json_object(path / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise NotAModel(f"{INDEX} lists no weights")
        wanted = {str(name) for name in cast("dict[str, object]", weight_map).values()}
    else:
        wanted = _shards(file.name for file in path.glob("model*.safetensors"))
    if not wanted:
        raise NotAModel("there are no model*.safetensors")
    missing = sorted(name for name in wanted if not _has_content(path / name))
    if missing:
        raise NotAModel(f"{len(missing)} of {len(wanted)} weight files missing, as {missing[0]}")


def _shards(present: Iterable[str]) -> set[str]:
    wanted: set[str] = set()
    for name in present:
        wanted.add(name)
        if shard := _SHARD.fullmatch(name):
            stem, count = shard[1], int(shard[3])
            wanted |= {f"{stem}-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)}
    return wanted


def _has_content(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False


def _context_tokens(config: dict[str, object]) -> int | None:
    nested = config.get("text_config")
    inner = cast("dict[str, object]", nested) if isinstance(nested, dict) else {}
    for source in (config, inner):
        for name in ("max_position_embeddings", "max_seq_len", "n_positions"):
            value = source.get(name)
            if isinstance(value, int) and value > 0:
                return value
    return None


def _quantization(config: dict[str, object]) -> str | None:
    """Such as `4-bit` or `8-bit mxfp8`; None for dense weights."""
    table = config.get("quantization") or config.get("quantization_config")
    if not isinstance(table, dict):
        return None
    entry = cast("dict[str, object]", table)
    bits, mode = entry.get("bits"), entry.get("mode", "affine")
    if not isinstance(bits, int):
        return str(entry.get("quant_method", "unknown"))
    return f"{bits}-bit" if mode == "affine" else f"{bits}-bit {mode}"
