"""What the scripted engine says when nothing goes wrong, worked out here."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from shared.requests import ChatMessage
from worker.engine.script import Script
from worker.engine.scripted_text import Answer, ScriptedText, orders_of

_FILES: Final[Mapping[str, bytes]] = {
    "config.json": b'{"model_type":"llama","max_position_embeddings":4096}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "model.safetensors": (2).to_bytes(8, "little") + b"{}",
}


def add_model(data_dir: Path, name: str) -> None:
    """What the catalogue takes for a model; the scripted engine reads none of it."""
    path = data_dir / "models" / name
    path.mkdir(parents=True)
    for file, content in _FILES.items():
        (path / file).write_bytes(content)


@dataclass(frozen=True)
class Said:
    """An undisturbed answer, and what its prompt counts."""

    tokens: tuple[int, ...]
    text: str
    prompt_tokens: int


@lru_cache(maxsize=4_096)
def undisturbed(content: str, seed: int) -> Said:
    """The answer to one user message."""
    script = Script()
    codec = ScriptedText(script)
    if "[[refuse" in content:
        return Said((), "", 0)
    prompt = codec.render_chat([ChatMessage("user", content)], 0)
    answer = Answer(prompt, seed, 0, orders_of(prompt, script), script.length)
    tokens = tuple(answer.token(position) for position in range(answer.length + 1))
    detokenizer = codec.detokenizer()
    text = "".join(map(detokenizer.push, tokens)) + detokenizer.flush()
    return Said(tokens, text, len(prompt))
