"""Text over HTTP is the text that mlx-lm itself makes, alone and among others."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.settings import DEFAULT_MODEL
from tests.default_model import default_model_path
from tests.e2e.conversing import ask, ask_at_once, ask_for_stream
from tests.e2e.server import RunningServer, site_in

MAX_TOKENS: Final = 12
BATCH: Final = 8
TEXT: Final = (
    "the sea keeps its own clock and every harbour in the north has learned to wait for it while "
    "merchants argue over prices of salt and of bread under a sky that promises nothing but rain"
)

REFERENCE: Final = """
import json, sys
from pathlib import Path
from worker import blas
report = blas.load("openblas" if sys.platform == "linux" else "auto", 0, Path(sys.argv[2]))
import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.utils import dequantize_model
mx.set_default_device(mx.cpu)
model, tokenizer = load(sys.argv[1], lazy=True)
model = dequantize_model(model)
model.set_dtype(mx.float32)
for content in json.load(sys.stdin):
    asked = [{"role": "user", "content": content}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True)
    said = list(stream_generate(model, tokenizer, prompt, max_tokens=int(sys.argv[3])))
    text = "".join(response.text for response in said)
    print(json.dumps([text, len(prompt), said[-1].finish_reason]), flush=True)
"""


def prompts() -> list[str]:
    """24 of them, of 5 to 400 tokens: a question, and words to read before it."""
    questions = ("What is this text about?", "Continue the text.", "Name one animal.")
    lengths = [0, 1, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50, 60, 75, 90, 110, 125, 130, 160, 200]
    lengths += [240, 280, 320, 370]
    return [_prompt(questions[n % 3], n, length) for n, length in enumerate(lengths)]


def _prompt(question: str, start: int, length: int) -> str:
    known = TEXT.split()
    words = [known[(start + n) % len(known)] for n in range(length)]
    return f"{' '.join(words)}. {question}" if words else question


@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_concurrent_streams_of_a_tiny_model_say_what_each_says_alone(
    tiny: RunningServer, temperature: float
) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        (
            _prompt("Go on.", n, 3 * n),
            {"temperature": temperature, "seed": n, "max_tokens": 40 + n},
        )
        for n in range(BATCH)
    ]
    alone = [ask_for_stream(tiny, content, **fields) for content, fields in requests]
    together = await ask_at_once(tiny, requests)
    assert [said.all_but_id for said in together] == [said.all_but_id for said in alone]
    assert len({said.text for said in alone}) == BATCH


@pytest.fixture(scope="module")
def smol(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[RunningServer]:
    """A server of the default model."""
    model = default_model_path()
    with site_in(tmp_path_factory.mktemp("smol"), worker_cache) as place:
        models = place.data_dir / "models"
        models.mkdir(parents=True)
        (models / DEFAULT_MODEL).symlink_to(model)
        yield place.start(engine="mlx", model=DEFAULT_MODEL)


@pytest.fixture(scope="module")
def expected(worker_cache: Path) -> list[tuple[str, int, str]]:
    """Text, prompt tokens and finish reason of each prompt, by `mlx_lm.stream_generate`."""
    command = [sys.executable, "-c", REFERENCE, str(default_model_path()), str(worker_cache)]
    done = subprocess.run(
        [*command, str(MAX_TOKENS)],
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
        input=json.dumps(prompts()),
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.model
@pytest.mark.timeout(300)
def test_each_prompt_of_the_default_model_gets_the_text_of_mlx_lm(
    smol: RunningServer, expected: list[tuple[str, int, str]]
) -> None:
    assert len(expected) == 24
    assert min(tokens for _, tokens, _ in expected) >= 5
    assert 390 <= max(tokens for _, tokens, _ in expected) <= 440
    for n, (content, (text, tokens, finish)) in enumerate(zip(prompts(), expected, strict=True)):
        way = ask_for_stream if n % 2 else ask
        said = way(smol, content, temperature=0, max_tokens=MAX_TOKENS)
        assert (said.text, said.tokens[0], said.finish) == (text, tokens, finish), content


@pytest.mark.model
@pytest.mark.timeout(300)
async def test_concurrent_streams_of_the_default_model_say_what_mlx_lm_says_alone(
    smol: RunningServer, expected: list[tuple[str, int, str]]
) -> None:
    fields = {"temperature": 0, "max_tokens": MAX_TOKENS}
    chosen = range(0, 24, 24 // BATCH)
    together = await ask_at_once(smol, [(prompts()[n], fields) for n in chosen])
    assert [said.text for said in together] == [expected[n][0] for n in chosen]
