"""Loading, containment of failures, and the ends that a model's template implies."""

import json
import resource
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from shared.launch import EngineSettings
from shared.requests import ChatMessage
from shared.sampling import SamplingParams
from tests.conformance.driving import Driver, make_spec
from tests.mlx.conftest import OpenMlx
from tests.models import CHAT_TEMPLATE, make_tiny_llama
from worker.engine.engine import EngineLost, RowId
from worker.engine.mlx_engine import MlxEngine

SAMPLED = SamplingParams(seed=3, temperature=1.0)


class Broken:
    """Stands in for the model and fails as often as told."""

    def __init__(self, model: Any, failures: int) -> None:
        self.model = model
        self.failures = failures

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("[metal::malloc] Resource limit exceeded")
        return self.model(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def break_model(engine: MlxEngine, failures: int) -> None:
    broken: Any = Broken(engine._model, failures)
    engine._model = broken
    engine._generator.model = broken
    engine._generator._decoding._model = broken
    engine._generator._prompt_batch.model = broken


# --- containment -----------------------------------------------------------------------------


def test_a_failed_step_fails_every_row_and_the_next_rows_are_right(
    open_mlx: OpenMlx, tiny_model: Path
) -> None:
    engine = open_mlx(tiny_model)
    driver = Driver(engine)
    expected = driver.alone(make_spec(0, sampling=SAMPLED))
    driver.insert(make_spec(1, sampling=SAMPLED))
    driver.until_tokens(1, 2)
    driver.insert(make_spec(2))
    break_model(engine, 1)
    for _ in range(3):
        driver.step()
    assert {failed.row for failed in driver.failed} == {RowId(1), RowId(2)}
    assert all(failed.failure.code == "engine_error" for failed in driver.failed)
    assert all(failed.failure.retryable for failed in driver.failed)
    assert engine.rows == 0
    assert driver.alone(make_spec(3, sampling=SAMPLED)) == expected


def test_an_engine_that_fails_twice_in_a_row_is_lost(open_mlx: OpenMlx, tiny_model: Path) -> None:
    engine = open_mlx(tiny_model)
    driver = Driver(engine)
    break_model(engine, 10)
    driver.insert(make_spec(1))
    driver.step()
    driver.insert(make_spec(2))
    with pytest.raises(EngineLost, match="Resource limit"):
        driver.step()


def test_failures_with_successes_between_them_do_not_add_up(
    open_mlx: OpenMlx, tiny_model: Path
) -> None:
    engine = open_mlx(tiny_model)
    driver = Driver(engine)
    for row in range(3):
        break_model(engine, 1)
        driver.insert(make_spec(10 + row))
        driver.step()
        assert driver.failed.pop().row == RowId(10 + row)
        driver.alone(make_spec(20 + row))


# --- loading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nowhere", "org/model"])
def test_only_a_directory_is_loaded_and_nothing_is_downloaded(tmp_path: Path, name: str) -> None:
    engine = MlxEngine(EngineSettings(model_path=str(tmp_path / name)))
    with pytest.raises(FileNotFoundError, match="no directory"):
        engine.load(lambda _done, _total: None)


def test_a_directory_without_a_config_is_no_model(tmp_path: Path) -> None:
    engine = MlxEngine(EngineSettings(model_path=str(tmp_path)))
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        engine.load(lambda _done, _total: None)


def test_code_of_a_model_is_never_run(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "tiny")
    (path / "evil.py").write_text("raise SystemExit('run')")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"model_file": "evil.py"}))
    with pytest.raises(ValueError, match="trust_remote_code"):
        MlxEngine(EngineSettings(model_path=str(path))).load(lambda _done, _total: None)


def test_importing_mlx_lm_leaves_the_limit_of_open_files_alone() -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] != 4096


def test_quantized_weights_become_dense_float32_on_the_cpu(
    open_mlx: OpenMlx, tmp_path: Path
) -> None:
    path = quantize(make_tiny_llama(tmp_path / "tiny"))
    dense = open_mlx(path, device="cpu")
    assert dense._info.arithmetic.endswith("cpu float32")
    kinds = {array.dtype for array in arrays(dense)}
    assert kinds == {mx.float32}
    as_it_is = open_mlx(path, device="cpu", dequantize="never")
    assert mx.uint32 in {array.dtype for array in arrays(as_it_is)}
    assert dense._info.fingerprint != as_it_is._info.fingerprint


def arrays(engine: MlxEngine) -> list[mx.array]:
    from worker.engine.upstream import flatten_tree

    return [array for _, array in flatten_tree(engine._model.parameters())]


def quantize(path: Path) -> Path:
    """The same model with its weights quantized to 4 bits."""
    weights: dict[str, mx.array] = mx.load(str(path / "model.safetensors"))  # pyright: ignore[reportAssignmentType]
    packed: dict[str, mx.array] = {}
    for name, weight in weights.items():
        if weight.ndim == 1:
            packed[name] = weight
            continue
        base = name.removesuffix(".weight")
        parts = mx.quantize(weight, group_size=32, bits=4)
        packed |= dict(zip((name, f"{base}.scales", f"{base}.biases"), parts, strict=True))
    mx.save_safetensors(str(path / "model.safetensors"), packed)
    config = json.loads((path / "config.json").read_text())
    config["quantization"] = {"group_size": 32, "bits": 4}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_the_fingerprint_tells_models_and_dtypes_apart(open_mlx: OpenMlx, tmp_path: Path) -> None:
    first = make_tiny_llama(tmp_path / "a")
    engines = [
        open_mlx(first),
        open_mlx(make_tiny_llama(tmp_path / "b", seed=1)),
        open_mlx(make_tiny_llama(tmp_path / "c", chat_template="{{ messages }}")),
        open_mlx(first, dtype="bfloat16"),
    ]
    prints = [engine._info.fingerprint for engine in engines]
    assert len(set(prints)) == len(prints)
    assert open_mlx(make_tiny_llama(tmp_path / "again"))._info.fingerprint == prints[0]


# --- ends and templates ----------------------------------------------------------------------


def test_the_end_of_turn_of_the_template_joins_the_end_of_sequence_tokens(
    open_mlx: OpenMlx, tmp_path: Path
) -> None:
    path = make_tiny_llama(tmp_path / "tiny", eos_token="<|endoftext|>")
    engine = open_mlx(path)
    special = engine._text.special_token("<|im_end|>")
    assert special in engine._info.eos_tokens
    assert engine._text.special_token("<|endoftext|>") in engine._info.eos_tokens
    assert engine._info.turn_stops == ()


def test_an_end_of_turn_that_is_no_token_becomes_a_stop_string(
    open_mlx: OpenMlx, tmp_path: Path
) -> None:
    template = CHAT_TEMPLATE.replace("<|im_end|>", "[/end]")
    engine = open_mlx(make_tiny_llama(tmp_path / "tiny", chat_template=template))
    assert engine._info.turn_stops == ("[/end]",)


def test_a_model_without_a_template_gets_a_plain_one(open_mlx: OpenMlx, tmp_path: Path) -> None:
    engine = open_mlx(make_tiny_llama(tmp_path / "tiny", chat_template=None))
    codec = engine.text()
    tokens = codec.render_chat([ChatMessage("system", "be brief"), ChatMessage("user", "hi")], 0)
    detokenizer = codec.detokenizer()
    text = "".join(detokenizer.push(token) for token in tokens)
    assert text == "System: be brief\nUser: hi\nAssistant:"
    assert engine._info.turn_stops == ("\nUser:",)


def test_the_clock_of_the_template_is_the_creation_of_the_job(
    open_mlx: OpenMlx, tmp_path: Path
) -> None:
    template = "{{ strftime_now('%Y-%m-%d %H:%M') }}" + CHAT_TEMPLATE
    codec = open_mlx(make_tiny_llama(tmp_path / "tiny", chat_template=template)).text()
    detokenizer = codec.detokenizer()
    tokens = codec.render_chat([ChatMessage("user", "hi")], 1_700_000_000)
    text = "".join(detokenizer.push(token) for token in tokens)
    assert text.startswith("2023-11-14 22:13")


def test_a_template_that_refuses_says_why(open_mlx: OpenMlx, tmp_path: Path) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    codec = open_mlx(make_tiny_llama(tmp_path / "tiny", chat_template=template)).text()
    with pytest.raises(ValueError, match="roles must alternate"):
        codec.render_chat([ChatMessage("user", "hi")], 0)
