"""Convert SmolLM2-135M-Instruct.Q4_1.gguf into an mlx-lm model directory.

    python -m worker.tools.convert_smollm2 GGUF OUT

Lossless: the GGUF's blocks are kept as they are. Q4_1 is MLX's affine 4 bits and Q8_0 (the
embedding) affine 8 bits, both in groups of 32; `mx.load` repacks the nibbles. Scales, biases and
norms are written as float32: on the CPU the worker computes in it, and 16-bit scales are the
slowest of all there. Only mlx and tokenizers are needed.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import mlx.core as mx

from worker.tools.gguf_tokenizer import UnsupportedTokenizer, build_tokenizer

GROUP_SIZE = 32
DEFAULT_BITS = 4

_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

Metadata = Mapping[str, object]
Tensors = dict[str, mx.array]


class UnsupportedGguf(Exception):
    """The file is not the model this tool converts."""


def convert(source: Path, out: Path) -> int:
    """Write the model directory and return the number of tensors. Raises UnsupportedGguf."""
    loaded = mx.load(str(source), return_metadata=True)
    raw, metadata = cast("tuple[Tensors, Metadata]", loaded)
    if metadata.get("general.architecture") != "llama":
        raise UnsupportedGguf(f"{source}: architecture is not llama")
    tensors = _tensors(raw, metadata)
    quantization = _quantization(tensors)
    config = _config(metadata, quantization, tied="output.weight" not in raw)
    out.mkdir(parents=True, exist_ok=True)
    _save_weights(tensors, out)
    _save_json(out / "config.json", config)
    ends = {name: config[name] for name in ("bos_token_id", "eos_token_id")}
    _save_json(out / "generation_config.json", ends)
    build_tokenizer(metadata, out)
    for file in out.iterdir():
        _flush(file)
    return len(tensors)


def _tensors(raw: Tensors, metadata: Metadata) -> Tensors:
    """All arrays under their mlx-lm names, q and k in their rotary order, floats as float32."""
    heads = {
        ".attn_q.": _number(metadata, "llama.attention.head_count"),
        ".attn_k.": _number(metadata, "llama.attention.head_count_kv"),
    }
    tensors: Tensors = {}
    for name, array in raw.items():
        made = array
        for part, count in heads.items():
            if part in name:
                made = _unpermute(array, count)
        floating = mx.issubdtype(made.dtype, mx.floating)
        tensors[_mlx_name(name)] = made.astype(mx.float32) if floating else made
    mx.eval(tensors)
    return tensors


def _mlx_name(name: str) -> str:
    stem, leaf = name.rsplit(".", 1)
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    try:
        if block:
            return f"model.layers.{block[1]}.{_LAYER[block[2]]}.{leaf}"
        return f"{_TOP[stem]}.{leaf}"
    except KeyError as error:
        raise UnsupportedGguf(f"unknown tensor {name}") from error


def _unpermute(array: mx.array, heads: int) -> mx.array:
    """Undo llama.cpp's row order: interleaved rotary pairs back to two halves.

    Holds for packed rows, scales and biases alike, since groups run along the input axis.
    """
    rows, columns = array.shape
    half = rows // heads // 2
    return array.reshape(heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _quantization(tensors: Tensors) -> dict[str, object]:
    """The config's table: 4 bits for all, and each module that has another width by name."""
    table: dict[str, object] = {"group_size": GROUP_SIZE, "bits": DEFAULT_BITS, "mode": "affine"}
    for name in tensors:
        module = name.removesuffix(".scales")
        if module == name:
            continue
        columns = tensors[name].shape[-1] * GROUP_SIZE
        bits = tensors[f"{module}.weight"].shape[-1] * 32 // columns
        if bits != DEFAULT_BITS:
            table[module] = {"group_size": GROUP_SIZE, "bits": bits, "mode": "affine"}
    return table


def _config(metadata: Metadata, quantization: object, *, tied: bool) -> dict[str, object]:
    def number(key: str) -> int:
        return _number(metadata, key)

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": number("llama.embedding_length"),
        "num_hidden_layers": number("llama.block_count"),
        "num_attention_heads": number("llama.attention.head_count"),
        "num_key_value_heads": number("llama.attention.head_count_kv"),
        "head_dim": number("llama.rope.dimension_count"),
        "intermediate_size": number("llama.feed_forward_length"),
        "vocab_size": number("llama.vocab_size"),
        "max_position_embeddings": number("llama.context_length"),
        "rope_theta": float(number("llama.rope.freq_base")),
        "rms_norm_eps": 1e-5,  # the GGUF holds it as a float32: 9.9999997e-06
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": number("tokenizer.ggml.bos_token_id"),
        "eos_token_id": number("tokenizer.ggml.eos_token_id"),
        "pad_token_id": number("tokenizer.ggml.padding_token_id"),
        "torch_dtype": "float32",
        "quantization": quantization,
        "quantization_config": quantization,
    }


def _number(metadata: Metadata, key: str) -> int:
    if key not in metadata:
        raise UnsupportedGguf(f"the metadata lacks {key}")
    value = metadata[key]
    return int(cast("int", value.item() if isinstance(value, mx.array) else value))


def _save_weights(tensors: Tensors, out: Path) -> None:
    mx.save_safetensors(str(out / "model.safetensors"), tensors, metadata={"format": "mlx"})
    index = {
        "metadata": {"total_size": sum(array.nbytes for array in tensors.values())},
        "weight_map": dict.fromkeys(sorted(tensors), "model.safetensors"),
    }
    _save_json(out / "model.safetensors.index.json", index)


def _save_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def main(arguments: list[str] | None = None) -> int:
    """Convert; 0 when written, 1 with one line on standard error when the file is another model."""
    parser = argparse.ArgumentParser(prog="convert_smollm2", description="GGUF to mlx-lm directory")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    try:
        count = convert(given.gguf, given.out)
    except (UnsupportedGguf, UnsupportedTokenizer) as error:
        print(f"convert_smollm2: {error}", file=sys.stderr)
        return 1
    print(f"{given.out}: {count} tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
