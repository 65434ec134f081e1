"""How clearly each token of a sampled answer was drawn.

A draw takes the largest of ``logit / temperature + noise``, the keyed score. Where the two best lie
close together, the last bits of the logits decide, which differ between batches of different
shapes. What a resume must not change is tested on answers that never come so near.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from shared.launch import EngineSettings
from shared.requests import ChatMessage
from shared.sampling import SamplingParams

CLEAR: Final = 1e-3


class Margins:
    """Scores answers of the model in a directory, all tokens of one at once."""

    def __init__(self, path: Path) -> None:
        from worker.engine.mlx_engine import MlxEngine

        settings = EngineSettings(model_path=str(path), dtype="float32", device="cpu")
        self._engine = MlxEngine(settings)
        self._engine.load(lambda _done, _total: None)

    def close(self) -> None:
        self._engine.close()

    def least(self, content: str, seed: int, temperature: float, tokens: Sequence[int]) -> float:
        """The smallest distance between the best and the second best score in this answer to a
        user's message. Each token is the best at its place, or the answer is not this model's."""
        import mlx.core as mx
        import numpy as np

        from worker.engine import sampling

        prompt = self._engine.text().render_chat([ChatMessage("user", content)], 0)
        model: Any = self._engine._model
        known = mx.array([*prompt, *tokens[:-1]])[None]
        logits = model(known)[0, len(prompt) - 1 :].astype(mx.float32)
        draws = sampling.RowDraw(SamplingParams(seed=seed, temperature=temperature), 0, 0)
        keys = mx.array([draws.key(n) for n in range(len(tokens))], dtype=mx.uint32)
        scores = np.array(logits / temperature + sampling._noise(keys, logits.shape[-1]))
        assert scores.argmax(axis=-1).tolist() == list(tokens)
        best = np.sort(scores, axis=-1)[:, -2:]
        return float((best[:, 1] - best[:, 0]).min())
