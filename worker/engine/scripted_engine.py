"""An engine without a model: tokens from hashes, with delays and failures to order.

It is what every test of the server runs on, and a way to try the server where MLX is not installed.
It keeps the contract of `Engine` to the letter: a token depends only on the prompt, the seed, the
choice and the position, so that neighbours, resumes and the cut into chunks change nothing.

`script` says what it can be told to do.
"""

import hashlib
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from shared.failures import Failure
from shared.launch import EngineSettings
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
from worker.engine.script import Orders, Script, read_script
from worker.engine.scripted_text import (
    END_OF_TURN,
    VOCAB_SIZE,
    Answer,
    ScriptedText,
    orders_of,
)
from worker.engine.validation import validate

_WEIGHT_BYTES: Final = 1_000_000
_LOAD_STEPS: Final = 10
_EXIT_STATUS: Final = 70


def _pass_time(seconds: float) -> None:
    """Even a sleep of nothing costs a system call and the interpreter's lock."""
    if seconds:
        time.sleep(seconds)


def _hang() -> NoReturn:
    while True:
        threading.Event().wait()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(status: int) -> NoReturn:
    sys.stderr.flush()
    os._exit(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What orders do to the process: a simulation gives its own."""

    sleep: Callable[[float], None] = _pass_time
    hang: Callable[[], None] = _hang
    die: Callable[[], None] = _die
    leave: Callable[[int], None] = _leave


@dataclass(slots=True)
class _Row:
    """One row. ``position`` is the index of its next token, ``fed`` counts prompt tokens done."""

    spec: RowSpec
    answer: Answer
    orders: Orders
    position: int
    fed: int = 0

    @property
    def context(self) -> int:
        return len(self.spec.prompt) + len(self.spec.replayed)

    @property
    def drawn(self) -> int:
        return self.position - len(self.spec.replayed)


class ScriptedEngine:
    """`Engine` without a model.

    ``computed`` counts the tokens computed per row, for tests that want to know what was really
    done.
    """

    def __init__(self, settings: EngineSettings, hands: Hands | None = None) -> None:
        self._settings = settings
        self._hands = hands or Hands()
        self._script: Script
        self._rows: dict[RowId, _Row] = {}
        self._info: EngineInfo
        self.computed: Counter[RowId] = Counter()

    def load(self, on_progress: Callable[[int, int], None]) -> EngineInfo:
        """Pretend to load weights.

        Raises:
            ValueError: when the script makes no sense.
            RuntimeError: when the script orders a failure.
        """
        self._script = read_script(self._settings.scripted)
        for step in range(_LOAD_STEPS + 1):
            on_progress(_WEIGHT_BYTES * step // _LOAD_STEPS, _WEIGHT_BYTES)
            if step < _LOAD_STEPS:
                self._hands.sleep(self._script.load_s / _LOAD_STEPS)
        if self._script.load_error:
            raise RuntimeError(self._script.load_error)
        context = self._script.context_tokens
        cap = self._settings.context_tokens
        self._info = EngineInfo(
            context_tokens=min(context, cap) if cap else context,
            vocab_size=VOCAB_SIZE,
            eos_tokens=frozenset({END_OF_TURN}),
            fingerprint=hashlib.sha256(f"scripted:{self._script.fingerprint}".encode()).hexdigest(),
            kv_bytes_per_token=1024,
            arithmetic="scripted",
        )
        return self._info

    def warm_up(self) -> None:
        """Take as long as the script says."""
        self._hands.sleep(self._script.warm_up_s)

    def text(self) -> TextCodec:
        """The byte-level text of this engine."""
        return ScriptedText(self._script)

    def insert(self, spec: RowSpec) -> None:
        """Add a row."""
        validate(spec, self._info, self._rows)
        orders = orders_of(spec.prompt, self._script)
        seed = spec.sampling.seed
        answer = Answer(spec.prompt, seed, spec.choice, orders, self._script.length)
        self._rows[spec.row] = _Row(spec, answer, orders, position=len(spec.replayed))

    def remove(self, row: RowId) -> None:
        """Drop a row."""
        self._rows.pop(row, None)

    def step(self) -> StepResult:
        """One token for every decoding row, then a chunk of what waits.

        Raises:
            EngineLost, RuntimeError: when a prompt orders it.
        """
        tokens: list[RowToken] = []
        failed: list[RowFailed] = []
        decoding = [row for row in self._rows.values() if row.fed == row.context]
        if decoding:
            self._hands.sleep(self._script.step_s)
        for row in decoding:
            outcome = self._decode(row)
            if isinstance(outcome, RowFailed):
                failed.append(outcome)
            else:
                tokens.append(outcome)
        return StepResult(tokens=tokens, progress=self._prefill(), failed=failed)

    @property
    def rows(self) -> int:
        """Rows inserted and not yet gone."""
        return len(self._rows)

    def close(self) -> None:
        """Drop all rows."""
        self._rows.clear()

    def _decode(self, row: _Row) -> RowToken | RowFailed:
        spec, orders = row.spec, row.orders
        _disturb(row, self._hands)
        if row.position in (orders.fail_at, orders.reject_at):
            del self._rows[spec.row]
            retryable = row.position == orders.fail_at
            return RowFailed(spec.row, Failure("scripted_failure", "As ordered.", retryable))
        token = row.answer.token(row.position)
        row.position += 1
        self.computed[spec.row] += 1
        if token == END_OF_TURN:
            del self._rows[spec.row]
            return RowToken(spec.row, token, "stop")
        if row.drawn == spec.max_tokens:
            del self._rows[spec.row]
            return RowToken(spec.row, token, "length")
        return RowToken(spec.row, token)

    def _prefill(self) -> list[RowProgress]:
        """One chunk of the oldest prompt that waits; of all of them where a chunk takes no time."""
        running = sum(row.fed == row.context for row in self._rows.values())
        waiting = [row for row in self._rows.values() if row.fed < row.context]
        free = max(0, self._settings.rows - running)
        if self._script.prefill_s:
            free = min(free, 1)
        return [self._prefill_chunk(row) for row in waiting[:free]]

    def _prefill_chunk(self, row: _Row) -> RowProgress:
        self._hands.sleep(self._script.prefill_s)
        row.fed = min(row.context, row.fed + self._settings.prefill_chunk_tokens)
        return RowProgress(row.spec.row, row.fed, row.context)


def _disturb(row: _Row, hands: Hands) -> None:
    """Do the violence that is ordered for this position."""
    orders, position = row.orders, row.position
    if position == orders.sleep_at:
        hands.sleep(orders.sleep_s)
    if position == orders.hang_at:
        hands.hang()
    if position == orders.crash_at or (position == orders.crash_once_at and not row.spec.replayed):
        hands.die()
    if position == orders.exit_at:
        hands.leave(_EXIT_STATUS)
    if position == orders.raise_at:
        raise RuntimeError("A step raised, as ordered.")
    if position == orders.lost_at:
        raise EngineLost("The engine is lost, as ordered.")
