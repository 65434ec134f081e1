"""The engine that computes: mlx-lm's batch generator behind the `Engine` protocol."""

import importlib.metadata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import mlx.core as mx

from shared.failures import Failure
from shared.launch import EngineSettings
from shared.sampling import SamplingParams
from worker.engine import loading
from worker.engine.engine import (
    EngineInfo,
    EngineLost,
    RowFailed,
    RowId,
    RowProgress,
    RowSpec,
    RowToken,
    StepResult,
    TextCodec,
)
from worker.engine.fingerprint import fingerprint
from worker.engine.generator import Decoded, Prefilled, RowGenerator
from worker.engine.sampling import RowDraw
from worker.engine.text_codec import ModelText, load_text
from worker.engine.validation import validate

if TYPE_CHECKING:
    from worker.engine.upstream import LanguageModel

_FAILURES_MAX: Final = 2
"""Failed steps in a row after which the engine is lost: a fresh generator failed too."""

_WARM_UP_TOKENS: Final = 3
_WARM_UP_SAMPLING: Final = (
    SamplingParams(seed=0, temperature=0.0),
    SamplingParams(seed=1),
    SamplingParams(seed=2, top_p=0.9),
    SamplingParams(seed=3, top_k=20),
    SamplingParams(seed=4, min_p=0.05),
)


class MlxEngine:
    """`Engine` over mlx-lm. Load, use and close it in one thread: MLX streams belong to threads."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._live: dict[RowId, int] = {}
        self._by_uid: dict[int, RowId] = {}
        self._failures = 0
        self._generator: RowGenerator
        self._info: EngineInfo
        self._model: LanguageModel
        self._stream: mx.Stream
        self._text: ModelText

    def load(self, on_progress: Callable[[int, int], None]) -> EngineInfo:
        """Load weights, tokenizer and template."""
        path = loading.model_directory(self._settings.model_path)
        loaded = loading.load(self._settings, on_progress)
        self._model = loaded.model
        self._stream = mx.new_stream(mx.default_device())
        eos = loading.eos_tokens(loaded.config)
        self._text = load_text(path, sorted(eos))
        eos, turn_stops = _ends(self._text, eos | self._text.eos_tokens)
        self._info = EngineInfo(
            context_tokens=loading.context_tokens(loaded.config, self._settings.context_tokens),
            vocab_size=loading.vocab_size(loaded.config, self._text.vocab_size),
            eos_tokens=eos,
            fingerprint=fingerprint(path, dtype=loaded.dtype, dense=loaded.dense),
            kv_bytes_per_token=loading.kv_bytes_per_token(loaded.config, loaded.dtype),
            arithmetic=f"mlx {importlib.metadata.version('mlx')} {loaded.device} {loaded.dtype}",
            turn_stops=turn_stops,
        )
        self._generator = self._new_generator()
        return self._info

    def warm_up(self) -> None:
        """Run small generations of every kind: alone, in batches that grow and shrink, each filter.

        The CPU backend compiles each fused kernel with the system's compiler the first time it is
        used, half a second each, and again for other memory layouts. Which layouts come up depends
        on prompt chunks (one token, some, a full one) and on the number of rows (one, more).
        """
        lengths = (1, 2, self._settings.prefill_chunk_tokens + 3)
        room = self._info.context_tokens - _WARM_UP_TOKENS
        for sampling in _WARM_UP_SAMPLING:
            self._run_once([self._warm_up_spec(0, 2, sampling)])
        specs = [
            self._warm_up_spec(row, min(length, room), sampling)
            for row, (length, sampling) in enumerate(
                (length, sampling) for length in lengths for sampling in _WARM_UP_SAMPLING[:2]
            )
        ]
        self._run_once(specs)
        self._generator = self._new_generator()

    def text(self) -> TextCodec:
        """The model's tokenizer and template."""
        return self._text

    def insert(self, spec: RowSpec) -> None:
        """Add a row; it joins the batch at the next step."""
        validate(spec, self._info, self._live)
        row_draw = RowDraw(spec.sampling, spec.choice, len(spec.replayed))
        context = [*spec.prompt, *spec.replayed]
        uid = self._generator.insert_row(context, spec.max_tokens, row_draw)
        self._live[spec.row] = uid
        self._by_uid[uid] = spec.row

    def remove(self, row: RowId) -> None:
        """Drop a row at any stage."""
        uid = self._live.pop(row, None)
        if uid is not None:
            del self._by_uid[uid]
            self._generator.remove_row(uid)

    def step(self) -> StepResult:
        """One decode step for all decoding rows, then at most a chunk of prompts."""
        try:
            prefilled, decoded = self._generator.advance()
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the batch is unusable
            return self._recover(error)
        self._failures = 0
        return StepResult(
            tokens=[self._token(one) for one in decoded],
            progress=[self._progress(one) for one in prefilled],
        )

    @property
    def rows(self) -> int:
        """Rows inserted and not yet gone."""
        return len(self._live)

    def close(self) -> None:
        """Release memory."""
        self._generator.close()
        del self._generator, self._model
        mx.clear_cache()

    def _token(self, decoded: Decoded) -> RowToken:
        row = self._by_uid[decoded.uid]
        if decoded.finish is not None:
            del self._by_uid[decoded.uid], self._live[row]
        return RowToken(row, decoded.token, decoded.finish)

    def _progress(self, prefilled: Prefilled) -> RowProgress:
        return RowProgress(self._by_uid[prefilled.uid], prefilled.done, prefilled.total)

    def _recover(self, error: Exception) -> StepResult:
        """Fail every row and start with an empty batch: after an exception inside a step, caches of
        different layers disagree and the same token may be fed twice."""
        self._failures += 1
        if self._failures >= _FAILURES_MAX:
            raise EngineLost(f"{type(error).__name__}: {error}") from error
        failure = Failure("engine_error", f"{type(error).__name__}: {error}", retryable=True)
        failed = [RowFailed(row, failure) for row in self._live]
        self._live.clear()
        self._by_uid.clear()
        self._generator = self._new_generator()
        mx.clear_cache()
        return StepResult(failed=failed)

    def _new_generator(self) -> RowGenerator:
        return RowGenerator(
            self._model,
            eos=self._info.eos_tokens,
            rows=self._settings.rows,
            chunk_tokens=self._settings.prefill_chunk_tokens,
            stream=self._stream,
        )

    def _warm_up_spec(self, row: int, length: int, sampling: SamplingParams) -> RowSpec:
        return RowSpec(
            row=RowId(-1 - row), prompt=[0] * length, sampling=sampling, max_tokens=_WARM_UP_TOKENS
        )

    def _run_once(self, specs: Sequence[RowSpec]) -> None:
        for spec in specs:
            self.insert(spec)
        while self.rows:
            self.step()


def _ends(text: ModelText, eos: frozenset[int]) -> tuple[frozenset[int], tuple[str, ...]]:
    """End-of-sequence tokens with the end-of-turn marker among them if it is a token; as a stop
    string otherwise."""
    marker = text.end_of_turn()
    if marker is None:
        return eos, ()
    token = text.special_token(marker)
    if token is None:
        return eos, (marker,)
    return eos | {token}, ()
