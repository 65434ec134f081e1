"""Whatever decides which tokens are computed changes the fingerprint."""

from pathlib import Path

import pytest

from worker.engine.fingerprint import fingerprint

LARGE = 20 * 1024 * 1024


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text('{"a": 1}')
    (tmp_path / "model-1.safetensors").write_bytes(bytes(1_000))
    (tmp_path / "model-2.safetensors").write_bytes(bytes(LARGE))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"rope_theta": 5}'),
        ("tokenizer.json", b"{}"),
        ("chat_template.jinja", b"{{ messages }}"),
        ("model-1.safetensors", bytes(999) + b"x"),
        ("model-2.safetensors", bytes(LARGE + 1)),
        ("model-2.safetensors", bytes(LARGE - 4_096) + b"x" * 4_096),
    ],
    ids=["config", "tokenizer", "template", "small weights", "size", "large weights"],
)
def test_a_change_of_the_model_shows(model: Path, name: str, content: bytes) -> None:
    before = fingerprint(model, dtype="float32", dense=True)
    assert fingerprint(model, dtype="float32", dense=True) == before
    (model / name).write_bytes(content)
    assert fingerprint(model, dtype="float32", dense=True) != before


def test_a_change_of_the_arithmetic_shows(model: Path) -> None:
    prints = {
        fingerprint(model, dtype=dtype, dense=dense)
        for dtype in ("float32", "bfloat16")
        for dense in (True, False)
    }
    assert len(prints) == 4


def test_a_note_beside_the_model_does_not_show(model: Path) -> None:
    before = fingerprint(model, dtype="float32", dense=True)
    (model / "README.md").write_text("hello")
    assert fingerprint(model, dtype="float32", dense=True) == before
