"""Drawing the next token of every row at once.

A draw depends only on (seed, choice, position) and the row's own logits: its noise comes from a key
hashed from these three, and it is added per token id. So a row draws the same token alone and in
any batch, and a resumed job goes on as if it had never stopped (invariant I10).

The draw is a Gumbel-max: the largest of ``logit / temperature + noise`` among the tokens that the
filters keep is a sample of their distribution. All filters are floors, logits below which a token
is out: top_k keeps the k largest, top_p the fewest whose probability among these reaches p, min_p
those with at least that share of the largest probability.

Nothing here may raise for valid parameters: it runs inside the decode step, where an exception
costs every row.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from shared.sampling import SamplingParams

_NEUTRAL_TEMPERATURE: Final = 1e-6
"""Lower ones would overflow float32; at this one the draw is the most likely token."""

_CANDIDATES: Final = 1024
"""Largest logits sorted first for top_p: they nearly always hold the mass that it asks for, which
is checked against the mass of all. If they do not, all are sorted."""


class RowDraw:
    """How one row draws: its parameters, and the position of its next token.

    ``base`` is the position of the row's first draw: the number of replayed tokens.
    """

    __slots__ = ("_prefix", "base", "params")

    def __init__(self, params: SamplingParams, choice: int, base: int) -> None:
        self.params = params
        self.base = base
        self._prefix = params.seed.to_bytes(8, "big") + choice.to_bytes(4, "big")

    @property
    def greedy(self) -> bool:
        """Whether every draw is the most likely token."""
        return self.params.greedy

    @property
    def on_host(self) -> bool:
        """Whether this draw sorts the vocabulary."""
        return not self.greedy and (self.params.top_p < 1.0 or self.params.top_k > 0)

    def key(self, drawn: int) -> tuple[int, int]:
        """The key of the draw after ``drawn`` others of this row, as two 32-bit words."""
        position = (self.base + drawn).to_bytes(8, "big")
        digest = hashlib.blake2b(self._prefix + position, digest_size=8).digest()
        return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:], "big")


def draw(logits: mx.array, rows: Sequence[RowDraw], drawn: Sequence[int]) -> mx.array:
    """The next token of every row, uint32 [n]; ``drawn`` counts the draws each has made.

    ``logits`` are [n, vocabulary]. Lazy, except that rows for which `needs_logits` is true
    are computed here and now.
    """
    best = mx.argmax(logits, axis=-1)
    sampled = [i for i, row in enumerate(rows) if not row.greedy]
    if not sampled:
        return best
    whole = len(sampled) == len(rows)
    chosen = (logits if whole else logits[mx.array(sampled)]).astype(mx.float32)
    picked = _sample(chosen, [rows[i] for i in sampled], [drawn[i] for i in sampled])
    if whole:
        return picked
    best[mx.array(sampled)] = picked
    return best


def needs_logits(rows: Sequence[RowDraw]) -> bool:
    """Whether `draw` will wait for the logits of these rows.

    On the CPU the filters that sort the vocabulary run in NumPy: its sort is thirty times as fast
    as MLX's there, which is worth losing the overlap with the next step. A GPU sorts itself.
    """
    return mx.default_device() == mx.Device(mx.cpu) and any(row.on_host for row in rows)


def _sample(logits: mx.array, rows: Sequence[RowDraw], drawn: Sequence[int]) -> mx.array:
    params = [row.params for row in rows]
    floor = _floors(logits, rows)
    least = [p.min_p for p in params]
    heat = [max(p.temperature, _NEUTRAL_TEMPERATURE) for p in params]
    if any(least):
        top = mx.max(logits, axis=-1, keepdims=True)
        slack = [t * math.log(m) if m else -math.inf for m, t in zip(least, heat, strict=True)]
        floor_p = top + mx.array(slack)[:, None]
        floor = floor_p if floor is None else mx.maximum(floor, floor_p)
    scores = logits * mx.array([1.0 / t for t in heat])[:, None]
    if floor is not None:
        scores = mx.where(logits >= floor, scores, -mx.inf)
    keys = mx.array([row.key(n) for row, n in zip(rows, drawn, strict=True)], dtype=mx.uint32)
    return mx.argmax(scores + _noise(keys, logits.shape[-1]), axis=-1)


def _noise(keys: mx.array, width: int) -> mx.array:
    """Gumbel noise, one row per key, the same for a key whatever its neighbours."""

    def one_row(key: mx.array) -> mx.array:
        return mx.random.gumbel((width,), key=key)

    return cast("Callable[[mx.array], mx.array]", mx.vmap(one_row))(keys)


def _floors(logits: mx.array, rows: Sequence[RowDraw]) -> mx.array | None:
    """Per row, the smallest logit that top_k and top_p keep [n, 1]; None when nobody asks."""
    asking = [i for i, row in enumerate(rows) if row.on_host]
    if not asking:
        return None
    params = [rows[i].params for i in asking]
    if not needs_logits(rows):
        floors = _device_floors(logits[mx.array(asking)], params)
    else:
        host = cast("NDArray[np.float32]", np.array(cast("Any", logits), copy=False))
        floors = mx.array([host_floor(host[i], p) for i, p in zip(asking, params, strict=True)])
    whole = mx.full((len(rows),), -mx.inf)
    whole[mx.array(asking)] = floors
    return whole[:, None]


def host_floor(logits: NDArray[np.float32], params: SamplingParams) -> float:
    """The smallest logit of one row that top_k and top_p keep; the latter among the former's."""
    width = len(logits)
    if 0 < params.top_k < width:
        largest = _largest(logits, params.top_k)
        return float(largest[-1]) if params.top_p >= 1.0 else _nucleus_floor(largest, params, None)
    if params.top_p >= 1.0:
        return -math.inf
    for count in (_CANDIDATES, width):
        largest = _largest(logits, min(count, width))
        floor = _nucleus_floor(largest, params, logits)
        if floor > largest[-1]:
            return floor
    return float(largest[-1])


def _largest(logits: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The largest logits in descending order."""
    width = len(logits)
    chosen = logits if count >= width else np.partition(logits, width - count)[width - count :]
    return np.sort(chosen)[::-1]


def _nucleus_floor(
    ordered: NDArray[np.float32], params: SamplingParams, everything: NDArray[np.float32] | None
) -> float:
    """The last of the descending logits that top_p keeps; without ``everything`` they are all."""
    heat = max(params.temperature, _NEUTRAL_TEMPERATURE)
    running = np.cumsum(np.exp((ordered - ordered[0]) / heat), dtype=np.float64)
    total = running[-1] if everything is None else np.exp((everything - ordered[0]) / heat).sum()
    reached = int(np.searchsorted(running, params.top_p * float(total)))
    return float(ordered[min(reached, len(ordered) - 1)])


def _device_floors(logits: mx.array, params: Sequence[SamplingParams]) -> mx.array:
    """`host_floor` of many rows in MLX operations, by a full sort."""
    width = logits.shape[-1]
    count = mx.array([min(p.top_k or width, width) for p in params])[:, None]
    heat = mx.array([max(p.temperature, _NEUTRAL_TEMPERATURE) for p in params])[:, None]
    ordered = -mx.sort(-logits, axis=-1)
    mass = mx.where(mx.arange(width) < count, mx.exp((ordered - ordered[:, :1]) / heat), 0.0)
    running = mx.cumsum(mass, axis=-1)
    # Without top_p all are kept: the running sum may not tell the last ones apart.
    share = mx.array([p.top_p if p.top_p < 1.0 else math.inf for p in params])[:, None]
    target = share * running[:, -1:]
    kept = mx.minimum(mx.sum(running < target, axis=-1, keepdims=True) + 1, count)
    return mx.take_along_axis(ordered, kept - 1, axis=-1)[:, 0]
