"""Draws against a plain reference, and what they must not depend on."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.sampling import SamplingParams
from worker.engine import sampling as under_test
from worker.engine.sampling import RowDraw, draw, host_floor

Logits = NDArray[np.float32]
VOCAB = 3_000

params = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.2, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.99, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 40, 1_500, VOCAB, VOCAB + 1]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
)
spreads = st.sampled_from([0.1, 1.0, 3.0, 8.0])


def make_logits(rows: int, seed: int = 0, spread: float = 3.0) -> Logits:
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(rows, VOCAB)) * spread).astype(np.float32)


def kept(logits: Logits, p: SamplingParams) -> set[int]:
    """The tokens that top_k, then top_p, then min_p leave of a row: the definition, unoptimised."""
    order = np.argsort(-logits, kind="stable")[: p.top_k or None]
    weights = np.exp((logits[order] - logits[order[0]]).astype(np.float64) / p.temperature)
    probabilities = weights / weights.sum()
    before = np.cumsum(probabilities) - probabilities
    order = order[(before < p.top_p) | (p.top_p >= 1.0)]
    top = logits[order[0]]
    return {
        int(token)
        for token in order
        if np.exp((float(logits[token]) - float(top)) / p.temperature) >= p.min_p
    }


def tokens(logits: Logits, rows: Sequence[RowDraw], drawn: Sequence[int]) -> list[int]:
    values: list[int] = draw(mx.array(logits), rows, drawn).tolist()  # pyright: ignore[reportAssignmentType]
    return values


@given(p=params, spread=spreads, seed=st.integers(0, 50))
def test_top_k_and_top_p_keep_what_the_definition_keeps(
    p: SamplingParams, spread: float, seed: int
) -> None:
    logits = make_logits(1, seed, spread)[0]
    without_min_p = SamplingParams(p.seed, p.temperature, p.top_p, p.top_k)
    floor = host_floor(logits, without_min_p)
    mine = set(np.flatnonzero(logits >= floor).tolist())
    # float32 sums differ in the last digits, so one token at the edge may fall on either side
    assert len(mine ^ kept(logits, without_min_p)) <= 1


@given(p=params, spread=spreads, seed=st.integers(0, 50))
def test_the_floors_of_the_gpu_path_are_those_of_the_cpu_path(
    p: SamplingParams, spread: float, seed: int
) -> None:
    logits = make_logits(3, seed, spread)
    device: list[float] = under_test._device_floors(mx.array(logits), [p] * 3).tolist()  # pyright: ignore[reportAssignmentType]
    for row, floor in zip(logits, device, strict=True):
        here, there = (int((row >= f).sum()) for f in (host_floor(row, p), floor))
        assert abs(here - there) <= max(2, 0.02 * here)


@given(p=params, spread=spreads, seed=st.integers(0, 50), drawn=st.integers(0, 10**6))
def test_a_drawn_token_is_one_that_the_filters_keep(
    p: SamplingParams, spread: float, seed: int, drawn: int
) -> None:
    logits = make_logits(1, seed, spread)
    token = tokens(logits, [RowDraw(p, 0, 0)], [drawn])[0]
    floor = host_floor(logits[0], p)
    assert logits[0][token] >= floor
    assert np.exp((logits[0][token] - logits[0].max()) / p.temperature) >= p.min_p * 0.999


@given(st.lists(params, min_size=2, max_size=6), st.integers(0, 100))
def test_a_row_draws_the_same_alone_and_among_others(rows: list[SamplingParams], n: int) -> None:
    logits = make_logits(len(rows), n)
    draws = [RowDraw(p, n, n) for p in rows]
    positions = [n + i for i in range(len(rows))]
    together = tokens(logits, draws, positions)
    alone = [tokens(logits[i : i + 1], [draws[i]], [positions[i]])[0] for i in range(len(rows))]
    assert together == alone


def test_greedy_rows_draw_the_likeliest_token_among_sampled_ones() -> None:
    logits = make_logits(4)
    rows = [RowDraw(SamplingParams(1, t), 0, 0) for t in (0.0, 1.0, 0.0, 1.0)]
    drawn = tokens(logits, rows, [0, 0, 0, 0])
    assert drawn[0] == int(logits[0].argmax())
    assert drawn[2] == int(logits[2].argmax())


def test_a_draw_depends_on_seed_choice_and_position_alone() -> None:
    flat = np.zeros((1, VOCAB), np.float32)
    p = SamplingParams(5, 1.0)
    here = tokens(flat, [RowDraw(p, 2, 10)], [3])
    assert here == tokens(flat, [RowDraw(p, 2, 13)], [0])
    variants = [RowDraw(SamplingParams(6, 1.0), 2, 13), RowDraw(p, 3, 13), RowDraw(p, 2, 14)]
    assert all(tokens(flat, [row], [0]) != here for row in variants)


@pytest.mark.parametrize(
    "p",
    [
        SamplingParams(1, 1.0),
        SamplingParams(2, 0.5),
        SamplingParams(3, 1.0, top_p=0.8),
        SamplingParams(4, 1.0, top_k=3),
        SamplingParams(5, 1.0, min_p=0.2),
    ],
    ids=repr,
)
def test_draws_follow_the_distribution(p: SamplingParams) -> None:
    logits = np.log(np.array([0.4, 0.25, 0.15, 0.1, 0.07, 0.03], np.float32))
    count = 4_000
    rows = [RowDraw(p, 0, 0)] * count
    drawn = tokens(np.tile(logits, (count, 1)), rows, range(count))
    expected = np.zeros(len(logits))
    for token in kept(logits, p):
        expected[token] = np.exp(logits[token] / p.temperature)
    expected /= expected.sum()
    seen = np.bincount(drawn, minlength=len(logits)) / count
    assert np.abs(seen - expected).max() < 4 * (0.25 / count) ** 0.5


def test_a_temperature_next_to_nothing_is_greedy() -> None:
    logits = make_logits(1)
    assert tokens(logits, [RowDraw(SamplingParams(1, 1e-30), 0, 0)], [0]) == [logits[0].argmax()]


def test_16_bit_logits_are_drawn_from_as_float32() -> None:
    logits = mx.array(make_logits(2)).astype(mx.bfloat16)
    rows = [RowDraw(SamplingParams(1, 1.0, 0.9), 0, 0), RowDraw(SamplingParams(1, 0.0), 0, 0)]
    assert len(draw(logits, rows, [0, 0]).tolist()) == 2  # pyright: ignore[reportArgumentType]
