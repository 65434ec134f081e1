"""The tokens are those that mlx-lm computes, whatever else runs in the batch.

That the default model's are so too is shown over HTTP (``test_over_http``).
"""

from pathlib import Path

import numpy as np
import pytest

from shared.requests import ChatMessage
from shared.sampling import SamplingParams
from tests.conformance.driving import Driver, make_spec
from tests.mlx.conftest import OpenMlx
from tests.mlx.reference import greedy
from worker.engine.engine import RowId

LENGTHS = (5, 6, 17, 63, 64, 65, 128, 129, 130, 200, 257, 400)
QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Count from one to twenty in words.",
    "Explain what a queue is, in one paragraph, to a child who has waited in one.",
    "Say hello in Japanese and in Czech.",
    "Name three colours.",
    "Why is the sky blue? " * 12,
    "List the planets.",
)
MIXED = (
    SamplingParams(seed=11, temperature=0.0),
    SamplingParams(seed=12, temperature=0.7),
    SamplingParams(seed=13, temperature=0.9, top_p=0.9),
    SamplingParams(seed=14, temperature=1.0, top_k=40),
    SamplingParams(seed=15, temperature=1.1, min_p=0.05),
    SamplingParams(seed=16, temperature=0.0),
    SamplingParams(seed=17, temperature=0.8, top_p=0.95, top_k=50),
    SamplingParams(seed=18, temperature=0.5),
)


def prompts() -> list[list[int]]:
    generator = np.random.default_rng(3)
    return [generator.integers(0, 256, length).tolist() for length in LENGTHS]


@pytest.mark.parametrize("n", range(len(LENGTHS)), ids=[str(length) for length in LENGTHS])
def test_a_greedy_row_equals_mlx_lm(open_mlx: OpenMlx, tiny_model: Path, n: int) -> None:
    engine = open_mlx(tiny_model)
    prompt = prompts()[n]
    assert Driver(engine).alone(make_spec(1, prompt, max_tokens=48)) == greedy(engine, prompt, 48)


def test_greedy_rows_that_join_a_running_batch_equal_mlx_lm(
    open_mlx: OpenMlx, tiny_model: Path
) -> None:
    engine = open_mlx(tiny_model, prefill_chunk_tokens=32)
    driver = Driver(engine)
    for n, prompt in enumerate(prompts()):
        driver.insert(make_spec(n, prompt, max_tokens=30))
        for _ in range(3):
            driver.step()
    heard = driver.finish()
    for n, prompt in enumerate(prompts()):
        assert heard[RowId(n)].tokens == greedy(engine, prompt, 30)


def test_the_output_of_the_tiny_model_wanders(open_mlx: OpenMlx, tiny_model: Path) -> None:
    tokens = Driver(open_mlx(tiny_model)).alone(make_spec(1, prompts()[3], max_tokens=60))
    assert len(set(tokens)) > 15


@pytest.mark.model
@pytest.mark.timeout(300)
def test_rows_of_the_default_model_draw_alone_what_they_draw_in_a_batch(
    open_mlx: OpenMlx, default_model: Path
) -> None:
    engine = open_mlx(default_model)
    codec = engine.text()
    driver = Driver(engine)
    specs = [
        make_spec(
            n,
            codec.render_chat([ChatMessage("user", question)], 0),
            sampling=sampling,
            max_tokens=8,
        )
        for n, (question, sampling) in enumerate(zip(QUESTIONS, MIXED, strict=True))
    ]
    for spec in specs:
        driver.insert(spec)
        driver.step()
    together = {row: heard.tokens for row, heard in driver.finish().items()}
    for spec in specs:
        assert Driver(engine).alone(spec) == together[spec.row]
