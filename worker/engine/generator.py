"""mlx-lm's `BatchGenerator` with another decode step and another way into the batch.

Everything about caches, padding, chunks and stages is mlx-lm's. Replaced is:

* **The decode step.** The stock one normalises the logits of the whole vocabulary for every row,
  calls samplers without telling them which row is where, and does not know positions. Ours keeps
  the pending *logits* instead of the pending tokens and draws from them with each row's parameters
  and position. Like the stock one it starts the next pass before it hands out the tokens of this
  one, so that neither Python nor the loop around it ever keeps the device waiting. On the CPU that
  delays the tokens by most of a pass, since MLX's `async_eval` returns there only when all but the
  last ten operations are done; so a row's first token is handed out before, and no pass is started
  in which a row is known to take no part.
* **Joining.** The stock generator runs a forward pass for each new row alone (a full pass over the
  weights) before it joins. Ours joins with its last prompt token still to be fed, in the pass that
  the others make anyway.
* **Starting together.** Prompts that arrive together are all computed before their rows begin, up
  to `HELD_STEPS_MAX` chunks: rows that start apart also end apart, and a pass for the last few
  costs as much as one for all. A row that has begun never waits for this.
* **Leaving.** The stock one copies the cache of every finished row. Ours marks the row and cuts it
  out at the next step.
* **Prefill.** One prompt at a time (the stock one pads a group of prompts to the longest chunk),
  at most ``prefill_step_size`` prompt tokens per step, short prompts sharing that budget. The stock
  one deep-copies a prompt's cache when the prompt is done; ours hands it over.

One thread must make and use a generator: MLX streams belong to threads.
"""
# mlx-lm is hardly annotated: everything that comes from it is unknown here, and only here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import mlx.core as mx

from worker.engine.sampling import RowDraw, draw
from worker.engine.upstream import BatchGenerator, LanguageModel, PromptProcessingBatch

HELD_STEPS_MAX: Final = 8
"""Steps in which rows that have drawn nothing yet wait for prompts that came with them."""

_CHUNK_TOKENS_MIN: Final = 32
"""What a short chunk is charged at least: it reads all weights, however few its tokens."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One new token of the row ``uid``."""

    uid: int
    token: int
    finish: Literal["stop", "length"] | None


@dataclass(frozen=True, slots=True)
class Prefilled:
    """``done`` of ``total`` prompt tokens of the row ``uid`` were taken; after all it decodes."""

    uid: int
    done: int
    total: int


@dataclass(slots=True)
class DecodeRow:
    """A row in decoding. ``tokens`` are prompt and completion, ``drawn`` counts the latter."""

    uid: int
    draw: RowDraw
    max_tokens: int
    tokens: list[int] = field(repr=False)
    drawn: int = 0


class DecodeBatch:
    """The decoding rows, with what `BatchGenerator` asks of its generation batch.

    Between two steps the last token of each row is either still to be fed, or its pass is already
    built: then ``_logits`` are the (perhaps not yet computed) logits of the first rows, and rows
    after these have joined since.
    """

    def __init__(self, model: LanguageModel, eos: frozenset[int]) -> None:
        self.prompt_cache: list[Any] = []
        self._model = model
        self._eos = eos
        self._rows: list[DecodeRow] = []
        self._logits: mx.array | None = None
        self._gone: set[int] = set()

    def __len__(self) -> int:
        return len(self._rows) - len(self._gone)

    @property
    def untouched(self) -> bool:
        """Whether no row has drawn a token: nobody watches a stream that would stand still."""
        return all(row.drawn == 0 for row in self._rows)

    @property
    def uids(self) -> list[int]:
        """The rows by number, those marked as gone included."""
        return [row.uid for row in self._rows]

    def join(self, row: DecodeRow, prompt_cache: list[Any]) -> None:
        """Take over a row, all of whose tokens but the last are in its cache."""
        self._cut_out_gone()
        if self.prompt_cache:
            for mine, other in zip(self.prompt_cache, prompt_cache, strict=True):
                mine.extend(other)
        else:
            self.prompt_cache = prompt_cache
        self._rows.append(row)

    def drop(self, uid: int) -> None:
        """Forget a row. It is cut out at the next step, or now if nobody else is left."""
        self._gone.add(uid)
        if not len(self):
            self.filter([])

    def filter(self, keep: Sequence[int]) -> None:
        """Keep the rows at these indices only."""
        if not keep:
            self.prompt_cache = []
        for cache in self.prompt_cache:
            cache.filter(list(keep))
        if self._logits is not None:
            built = [index for index in keep if index < self._logits.shape[0]]
            self._logits = self._logits[mx.array(built)] if built else None
        self._rows = [self._rows[index] for index in keep]
        self._gone.intersection_update(self.uids)

    def next(self, *, build_ahead: bool = True) -> list[Decoded]:
        """The next token of each row; rows that joined behind a pass already built come next time.

        ``build_ahead`` False when a row may join before the next call, which would miss that pass.
        """
        self._cut_out_gone()
        if not self._rows:
            return []
        if self._logits is None:
            last = [row.tokens[-1] for row in self._rows]
            self._logits = self._build(mx.array(last, dtype=mx.uint32))
        rows = self._rows[: self._logits.shape[0]]
        tokens = draw(self._logits, [row.draw for row in rows], [row.drawn for row in rows])
        # Apart from the pass to come: to wait for one result of an evaluation is to wait for all.
        mx.async_eval(tokens)
        self._logits = None
        if build_ahead and len(rows) == len(self._rows) and not _one_ends(rows):
            self._logits = self._build(tokens)
            if all(row.drawn for row in rows):
                mx.async_eval(self._logits)
        return self._read(rows, tokens)

    def _build(self, tokens: mx.array) -> mx.array:
        """The pass that feeds every row its token."""
        return self._model(tokens[:, None], cache=self.prompt_cache)[:, -1, :]

    def _read(self, rows: list[DecodeRow], tokens: mx.array) -> list[Decoded]:
        """Wait for the drawn tokens, note them in their rows, and mark the rows that end."""
        drawn = cast("list[int]", tokens.tolist())
        decoded = [self._note(row, token) for row, token in zip(rows, drawn, strict=True)]
        for row in decoded:
            if row.finish is not None:
                self.drop(row.uid)
        return decoded

    def _note(self, row: DecodeRow, token: int) -> Decoded:
        row.drawn += 1
        row.tokens.append(token)
        if token in self._eos:
            return Decoded(row.uid, token, "stop")
        return Decoded(row.uid, token, "length" if row.drawn >= row.max_tokens else None)

    def _cut_out_gone(self) -> None:
        if self._gone:
            self.filter([i for i, row in enumerate(self._rows) if row.uid not in self._gone])


def _one_ends(rows: Sequence[DecodeRow]) -> bool:
    """Whether a row is known to end with the token being drawn."""
    return any(row.drawn + 1 >= row.max_tokens for row in rows)


class RowGenerator(BatchGenerator):
    """See the head of this file.

    Rows are inserted with a `RowDraw` in place of a sampler.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        eos: frozenset[int],
        rows: int,
        chunk_tokens: int,
        stream: mx.Stream,
    ) -> None:
        super().__init__(
            cast("Any", model),
            completion_batch_size=rows,
            prefill_batch_size=1,
            prefill_step_size=chunk_tokens,
            stream=stream,
        )
        self._decoding = DecodeBatch(model, eos)
        self._generation_batch: Any = self._decoding
        self._held = 0

    def insert_row(self, prompt: list[int], max_tokens: int, row_draw: RowDraw) -> int:
        """Queue a row and return its number."""
        return self.insert([prompt], max_tokens=[max_tokens], samplers=cast("Any", [row_draw]))[0]

    def remove_row(self, uid: int) -> None:
        """Forget a row at any stage."""
        if uid in self._decoding.uids:
            self._decoding.drop(uid)
        else:
            self.remove([uid])

    def advance(self) -> tuple[list[Prefilled], list[Decoded]]:
        """One decode step, then prompts up to the budget: `next`, done our way."""
        with mx.stream(self._stream):
            return self._advance()

    def _advance(self) -> tuple[list[Prefilled], list[Decoded]]:
        waiting = bool(self._currently_processing or self._unprocessed_sequences)
        decoded: list[Decoded] = []
        if waiting and self._decoding.untouched and self._held < HELD_STEPS_MAX:
            self._held += 1
        else:
            self._held = 0
            decoded = self._decoding.next(build_ahead=not waiting)
        prefilled: list[Prefilled] = []
        budget = self.prefill_step_size
        while self._admit(budget):
            done = self._prefill(budget)
            prefilled.append(done[0])
            budget -= max(done[1], _CHUNK_TOKENS_MIN)
        return prefilled, decoded

    def _admit(self, budget: int) -> bool:
        """Whether there is a prompt to work on. A further one in the same step must fit wholly."""
        if self._currently_processing:
            return budget == self.prefill_step_size
        if not self._unprocessed_sequences:
            return False
        if len(self._decoding) >= self.completion_batch_size:
            return False
        length = sum(len(segment) for segment in self._unprocessed_sequences[0][1])
        if budget < self.prefill_step_size and max(length, _CHUNK_TOKENS_MIN) > budget:
            return False
        self._prompt_batch.extend(self._make_batch(1))
        return True

    def _prefill(self, budget: int) -> tuple[Prefilled, int]:
        """Compute one chunk of the prompt at work, and let the row join when only its last token is
        left. Returns the progress and the tokens computed."""
        segments, done, total = self._currently_processing[0]
        uid = self._prompt_batch.uids[0]
        chunk: list[int] = segments[0][:budget] if len(segments) > 1 else []
        if chunk:
            self._prompt_batch.prompt([chunk])
            segments[0] = segments[0][len(chunk) :]
            if not segments[0]:
                segments.pop(0)
        done += len(chunk)
        self._currently_processing[0][1] = done
        if len(segments) > 1:
            return Prefilled(uid, done, total), len(chunk)
        self._join(segments[0][0])
        return Prefilled(uid, total, total), len(chunk)

    def _join(self, last_token: int) -> None:
        batch = self._prompt_batch
        tokens = [*batch.tokens[0], last_token]
        row_draw = cast("RowDraw", batch.samplers[0])
        row = DecodeRow(batch.uids[0], row_draw, batch.max_tokens[0], tokens)
        self._decoding.join(row, batch.prompt_cache)
        self._currently_processing.clear()
        self._prompt_batch = PromptProcessingBatch.empty(
            self.model, self.sampler, prefill_step_size=self.prefill_step_size
        )
