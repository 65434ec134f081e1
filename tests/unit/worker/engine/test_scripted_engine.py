"""The scripted engine does what it is told, and only that."""

import json
import subprocess
import sys
from typing import Any

import pytest

from shared.launch import EngineSettings
from shared.requests import ChatMessage
from shared.sampling import SamplingParams
from worker.engine.engine import EngineLost, RowFailed, RowId, RowSpec, RowToken
from worker.engine.script import Script, read_orders, read_script
from worker.engine.scripted_engine import ScriptedEngine
from worker.engine.scripted_text import END_OF_TURN
from worker.engine.sequence import Sequence


def make_engine(**script: Any) -> ScriptedEngine:
    settings = EngineSettings(engine="scripted", model_path="", scripted=json.dumps(script))
    engine = ScriptedEngine(settings)
    engine.load(lambda _done, _total: None)
    return engine


def insert(
    engine: ScriptedEngine, content: str, row: int = 1, *, replayed: tuple[int, ...] = ()
) -> None:
    prompt = engine.text().render_chat([ChatMessage("user", content)], 0)
    engine.insert(
        RowSpec(
            row=RowId(row),
            prompt=prompt,
            sampling=SamplingParams(seed=1),
            max_tokens=1_000,
            replayed=replayed,
        )
    )


def run(engine: ScriptedEngine) -> list[RowToken | RowFailed]:
    heard: list[RowToken | RowFailed] = []
    while engine.rows:
        result = engine.step()
        heard += [*result.tokens, *result.failed]
    return heard


def text_of(engine: ScriptedEngine, content: str) -> str:
    insert(engine, content)
    sequence = Sequence(engine.text().detokenizer(), frozenset({END_OF_TURN}))
    for heard in run(engine):
        assert isinstance(heard, RowToken)
        sequence.push(heard.token, heard.finish)
    return sequence.shown


def test_its_answers_are_readable_text_without_broken_characters() -> None:
    text = text_of(make_engine(), "tell me something [[tokens=400]]")
    assert "\ufffd" not in text
    assert not text.isascii()
    assert " the" in text


def test_an_answer_has_the_ordered_number_of_tokens_and_then_its_end() -> None:
    engine = make_engine(length=5)
    insert(engine, "hi")
    assert len(run(engine)) == 6
    insert(engine, "hi [[tokens=9]]", row=2)
    assert len(run(engine)) == 10
    assert engine.computed == {RowId(1): 6, RowId(2): 10}


def test_an_answer_can_be_dictated() -> None:
    assert text_of(make_engine(), "[[say=až STOP 日本]]") == "až STOP 日本"


def test_orders_of_earlier_messages_are_not_obeyed() -> None:
    codec = make_engine().text()
    engine = make_engine(length=3)
    prompt = codec.render_chat([ChatMessage("user", "[[tokens=50]]"), ChatMessage("user", "x")], 0)
    sampling = SamplingParams(seed=1)
    engine.insert(RowSpec(row=RowId(1), prompt=prompt, sampling=sampling, max_tokens=100))
    assert len(run(engine)) == 4


def test_orders_can_be_switched_off() -> None:
    engine = make_engine(length=3, obey_prompts=False)
    insert(engine, "[[tokens=50]]")
    assert len(run(engine)) == 4


@pytest.mark.parametrize(("order", "retryable"), [("fail_at", True), ("reject_at", False)])
def test_a_row_fails_at_the_ordered_token_and_alone(order: str, retryable: bool) -> None:
    engine = make_engine()
    insert(engine, f"[[{order}=3]]")
    insert(engine, "[[tokens=6]]", row=2)
    heard = run(engine)
    failed = [h for h in heard if isinstance(h, RowFailed)]
    assert [(f.row, f.failure.retryable) for f in failed] == [(RowId(1), retryable)]
    assert sum(h.row == RowId(1) for h in heard) == 4
    assert sum(h.row == RowId(2) for h in heard) == 7


@pytest.mark.parametrize(
    ("order", "error"), [("raise_at=2", RuntimeError), ("lost_at=2", EngineLost)]
)
def test_a_step_raises_at_the_ordered_token(order: str, error: type[Exception]) -> None:
    engine = make_engine()
    insert(engine, f"[[{order}]]")
    with pytest.raises(error, match="as ordered"):
        run(engine)
    assert engine.computed[RowId(1)] == 2


CRASH = """
import sys
from tests.unit.worker.engine.test_scripted_engine import insert, make_engine, run
engine = make_engine()
insert(engine, sys.argv[1], replayed=(65,) * int(sys.argv[2]))
run(engine)
print("lived")
"""


@pytest.mark.parametrize(
    ("order", "replayed", "status"),
    [
        ("[[crash_at=3]]", 0, -9),
        ("[[crash_at=3]]", 2, -9),
        ("[[crash_once_at=3]]", 0, -9),
        ("[[crash_once_at=3]]", 2, 0),
        ("[[exit_at=3]]", 0, 70),
    ],
)
def test_the_process_dies_at_the_ordered_token(order: str, replayed: int, status: int) -> None:
    command = [sys.executable, "-c", CRASH, order, str(replayed)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == status, done.stderr
    assert ("lived" in done.stdout) == (status == 0)


def test_a_template_can_be_told_to_refuse() -> None:
    with pytest.raises(ValueError, match="no such role"):
        insert(make_engine(), "[[refuse=no such role]]")


def test_loading_can_be_told_to_fail() -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        make_engine(load_error="out of memory")


@pytest.mark.parametrize("text", ['{"lenght": 3}', '{"step_s": -1}', "nonsense", "[]"])
def test_a_script_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_script(text)


def test_no_script_is_the_default_one() -> None:
    assert read_script("") == Script()


@pytest.mark.parametrize("text", ["[[explode=1]]", "[[tokens=many]]", "[[crash_at=-1]]"])
def test_an_order_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_orders(text)


def test_it_imports_no_mlx() -> None:
    code = "import sys, worker.engine.scripted_engine; print('mlx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
