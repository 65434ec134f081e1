"""Where a measured server lives, and what it is asked."""

from pathlib import Path
from typing import Any, Final

import msgspec

MODEL: Final = "nothing"
"""A directory that the catalogue takes for a model; the scripted engine reads none of it."""

TEXT: Final = "What is asked here is as long as a short question with some words around it. " * 3
"""About 230 bytes."""


def lay_out(place: Path) -> dict[str, str]:
    """Put the model where a server in ``place`` finds it; returns the settings that name it."""
    model = place / "data" / "models" / MODEL
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"model_type":"llama","max_position_embeddings":4096}')
    (model / "tokenizer.json").write_text("{}")
    (model / "tokenizer_config.json").write_text("{}")
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return {
        "models.default": MODEL,
        "log.level": "warning",
        "queue.background_max": "10000000",
        "queue.interactive_max": "100000",
    }


def job(text: str = TEXT, tokens: int = 8_000) -> dict[str, Any]:
    """A durable job."""
    messages = [{"role": "user", "content": text}]
    return {
        "kind": "chat",
        "model": MODEL,
        "body": {"messages": messages, "max_tokens": tokens},
    }


def body(value: Any) -> str:
    """As JSON."""
    return msgspec.json.encode(value).decode()
