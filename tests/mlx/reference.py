"""What mlx-lm itself generates."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from worker.engine.mlx_engine import MlxEngine


def greedy(engine: MlxEngine, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """The tokens of `mlx_lm.stream_generate` with this engine's model."""
    from mlx_lm.generate import stream_generate

    model: Any = engine._model
    tokenizer: Any = engine._text._tokenizer
    responses = stream_generate(model, tokenizer, mx.array(list(prompt)), max_tokens=max_tokens)
    tokens = [int(response.token) for response in responses]
    assert tokens
    return tokens
