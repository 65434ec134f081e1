"""Parts of the conversion that need no GGUF; `tests/mlx/test_default_model.py` has the result."""

from pathlib import Path

import mlx.core as mx
import pytest

from worker.tools import convert_smollm2
from worker.tools.convert_smollm2 import UnsupportedGguf
from worker.tools.gguf_tokenizer import UnsupportedTokenizer, build_tokenizer


def permute(array: mx.array, heads: int) -> mx.array:
    """llama.cpp's LlamaModel.permute."""
    rows, columns = array.shape
    split = array.reshape(heads, 2, rows // heads // 2, columns)
    return split.swapaxes(1, 2).reshape(rows, columns)


def test_the_row_order_of_llama_cpp_is_undone() -> None:
    rows = mx.arange(24 * 2).reshape(24, 2)
    assert not mx.array_equal(permute(rows, 3), rows).item()
    assert mx.array_equal(convert_smollm2._unpermute(permute(rows, 3), 3), rows).item()


@pytest.mark.parametrize(
    ("gguf", "mlx"),
    [
        ("blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
        ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
        ("token_embd.scales", "model.embed_tokens.scales"),
        ("output_norm.weight", "model.norm.weight"),
    ],
)
def test_tensors_get_their_mlx_lm_names(gguf: str, mlx: str) -> None:
    assert convert_smollm2._mlx_name(gguf) == mlx


@pytest.mark.parametrize("name", ["blk.1.attn_x.weight", "rope.weight"])
def test_an_unknown_tensor_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedGguf, match=name):
        convert_smollm2._mlx_name(name)


def test_only_modules_of_another_width_are_named_in_the_table() -> None:
    tensors = {
        "a.weight": mx.zeros((4, 8), mx.uint32),
        "a.scales": mx.zeros((4, 2)),
        "b.weight": mx.zeros((4, 16), mx.uint32),
        "b.scales": mx.zeros((4, 2)),
    }
    assert convert_smollm2._quantization(tensors) == {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "b": {"group_size": 32, "bits": 8, "mode": "affine"},
    }


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTokenizer, match="llama"):
        build_tokenizer({"tokenizer.ggml.model": "llama"}, tmp_path)
