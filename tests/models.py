"""Tiny models with random weights, as directories that mlx-lm loads, made in a moment."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from worker.engine.detokenize import gpt2_alphabet

if TYPE_CHECKING:
    import mlx.core as mx

SPECIAL_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TURN: Final = SPECIAL_TOKENS[2]
_MERGES: Final = ("th", "he", "in", "er", "an", "Ġt", "Ġa", "Ġth", "Ġw", "Ġthe", "ou", "Ġan")
_LAYERS: Final = 2
_HIDDEN: Final = 64
_FFN: Final = 128
_HEADS: Final = 4
_KV_HEADS: Final = 2
_HEAD_DIM: Final = _HIDDEN // _HEADS

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tiny_llama(
    path: Path,
    *,
    seed: int = 0,
    context_tokens: int = 1_024,
    chat_template: str | None = CHAT_TEMPLATE,
    eos_token: str | None = END_OF_TURN,
) -> Path:
    """Write a Llama of two layers and return its directory.

    The tokenizer is byte-level with a few merges and ChatML marks. Weights are scaled so that
    logits spread over several units: the likeliest two tokens differ clearly, and greedy output
    wanders instead of repeating one token.
    """
    import mlx.core as mx

    path.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_level_tokenizer()
    vocab_size = tokenizer.get_vocab_size()
    tokenizer.save(str(path / "tokenizer.json"))
    eos = None if eos_token is None else tokenizer.token_to_id(eos_token)
    _write(path / "tokenizer_config.json", _tokenizer_config(chat_template, eos_token))
    _write(path / "config.json", _config(vocab_size, context_tokens, eos))
    core: Any = mx
    core.save_safetensors(
        str(path / "model.safetensors"), _weights(vocab_size, seed), {"format": "mlx"}
    )
    return path


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1))


def byte_level_tokenizer() -> Tokenizer:
    """Byte-level BPE with ChatML's special tokens and one added token that is shown, `<think>`."""
    vocab = {char: index for index, char in enumerate(sorted(gpt2_alphabet()))}
    merges: list[tuple[str, str]] = []
    for merged in _MERGES:
        left, right = merged[:-1], merged[-1]
        if left not in vocab:
            left, right = merged[0], merged[1:]
        merges.append((left, right))
        vocab[merged] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    added: Any = tokenizer
    added.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL_TOKENS])
    added.add_tokens([AddedToken("<think>", special=False)])
    return tokenizer


def sentencepiece_tokenizer() -> Tokenizer:
    """In the manner of Llama 2: spaces are part of words, what is unknown falls back to bytes."""
    letters = "▁abcdefghijklmnopqrstuvwxyzé"
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, "▁a", "▁th"]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys([*pieces, "th"]))}
    merges = [("▁", "a"), ("t", "h"), ("▁", "th")]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    added: Any = tokenizer
    added.add_special_tokens([AddedToken("</s>", special=True)])
    return tokenizer


def _tokenizer_config(chat_template: str | None, eos_token: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "additional_special_tokens": list(SPECIAL_TOKENS),
    }
    if eos_token is not None:
        config["eos_token"] = eos_token
    if chat_template is not None:
        config["chat_template"] = chat_template
    return config


def _config(vocab_size: int, context_tokens: int, eos: int | None) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _HIDDEN,
        "num_hidden_layers": _LAYERS,
        "intermediate_size": _FFN,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocab_size,
        "max_position_embeddings": context_tokens,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
    }
    if eos is not None:
        config["eos_token_id"] = eos
    return config


def _weights(vocab_size: int, seed: int) -> "dict[str, mx.array]":
    import mlx.core as mx

    kv = _KV_HEADS * _HEAD_DIM
    shapes = {"model.embed_tokens": (vocab_size, _HIDDEN), "lm_head": (vocab_size, _HIDDEN)}
    for n in range(_LAYERS):
        layer = f"model.layers.{n}"
        shapes |= {
            f"{layer}.self_attn.q_proj": (_HIDDEN, _HIDDEN),
            f"{layer}.self_attn.k_proj": (kv, _HIDDEN),
            f"{layer}.self_attn.v_proj": (kv, _HIDDEN),
            f"{layer}.self_attn.o_proj": (_HIDDEN, _HIDDEN),
            f"{layer}.mlp.gate_proj": (_FFN, _HIDDEN),
            f"{layer}.mlp.up_proj": (_FFN, _HIDDEN),
            f"{layer}.mlp.down_proj": (_HIDDEN, _FFN),
        }
    keys = list(mx.random.split(mx.random.key(seed), len(shapes)))
    weights = {
        f"{name}.weight": mx.random.normal(shape, key=key) * (2.0 / shape[1] ** 0.5)
        for (name, shape), key in zip(shapes.items(), keys, strict=True)
    }
    norms = [f"model.layers.{n}.{kind}" for n in range(_LAYERS) for kind in _NORMS]
    ones = {f"{name}.weight": mx.ones((_HIDDEN,)) for name in [*norms, "model.norm"]}
    return weights | ones


_NORMS: Final = ("input_layernorm", "post_attention_layernorm")
