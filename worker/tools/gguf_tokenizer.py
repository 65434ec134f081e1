"""Rebuild a tokenizer from a GGUF's metadata: byte-level BPE as SmolLM2 uses it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3  # llama.cpp's type of a special token

Metadata = Mapping[str, object]


class UnsupportedTokenizer(Exception):
    """The GGUF's tokenizer is of a kind that is not rebuilt here."""


def build_tokenizer(metadata: Metadata, out: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`. Raises UnsupportedTokenizer."""
    kind = (metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise UnsupportedTokenizer(f"tokenizer {kind} is not ('gpt2', 'smollm')")
    tokens = cast("list[str]", metadata["tokenizer.ggml.tokens"])
    special = _special(metadata, tokens)
    tokenizer = _bpe(metadata, tokens)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    if tokenizer.get_vocab_size() != len(tokens):
        raise UnsupportedTokenizer("the special tokens are not all in the vocabulary")
    tokenizer.save(str(out / "tokenizer.json"))
    text = json.dumps(_config(metadata, tokens, special), indent=2, ensure_ascii=False)
    (out / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _bpe(metadata: Metadata, tokens: list[str]) -> Tokenizer:
    """The model, and the "smollm" pre-tokenizer: single digits, then GPT-2's pattern on bytes."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    for merge in cast("list[str]", metadata["tokenizer.ggml.merges"]):
        left, right = merge.split(" ")
        merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False))
    prefix = bool(_plain(metadata["tokenizer.ggml.add_space_prefix"]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, in_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _special(metadata: Metadata, tokens: list[str]) -> list[str]:
    types = cast("mx.array", metadata["tokenizer.ggml.token_type"]).tolist()
    kinds = cast("list[int]", types)
    return [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]


def _config(metadata: Metadata, tokens: list[str], special: list[str]) -> dict[str, object]:
    def token(name: str) -> str:
        return tokens[cast("int", _plain(metadata[f"tokenizer.ggml.{name}_token_id"]))]

    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "unk_token": token("unknown"),
        "pad_token": token("padding"),
        "add_bos_token": bool(_plain(metadata["tokenizer.ggml.add_bos_token"])),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": _plain(metadata["llama.context_length"]),
        "additional_special_tokens": special,
        "chat_template": metadata["tokenizer.chat_template"],
    }


def _plain(value: object) -> object:
    return value.item() if isinstance(value, mx.array) else value
