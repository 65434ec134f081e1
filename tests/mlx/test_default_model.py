"""The converted default model, as mlx-lm loads it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.default_model import default_model_path

ANSWER = """
import sys
from pathlib import Path
from worker import blas
blas.load("auto", 0, Path(sys.argv[2]))
import mlx.core as mx
from mlx_lm import generate, load
from mlx_lm.utils import dequantize_model
model, tokenizer = load(sys.argv[1], lazy=True)
model = dequantize_model(model)
model.set_dtype(mx.float32)
text = "a 1234\\n\\té 中 🙂 <|im_end|>"
assert tokenizer.decode(tokenizer.encode(text)) == text
assert len(tokenizer.encode("1234")) == 4
assert set(tokenizer.eos_token_ids) == {2}
asked = [{"role": "user", "content": "What is the capital of France?"}]
prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True)
print(generate(model, tokenizer, prompt, max_tokens=12))
"""

pytestmark = pytest.mark.model


def test_its_configuration_names_the_licence_and_the_widths() -> None:
    path = default_model_path()
    config = json.loads((path / "config.json").read_text())
    assert (config["model_type"], config["max_position_embeddings"]) == ("llama", 8192)
    assert config["quantization"]["bits"] == 4
    assert config["quantization"]["model.embed_tokens"]["bits"] == 8
    assert json.loads((path / "MODEL.json").read_text())["licence"] == "Apache-2.0"


def test_it_knows_the_capital_of_france(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ANSWER, str(default_model_path()), str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "The capital of France is Paris.", done.stderr
