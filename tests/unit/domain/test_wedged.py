from typing import Any

from app.domain.wedged import Engine, stall_limit_s
from shared.ids import GenerationId
from shared.messages import Heartbeat

STALL_S, PREPARE_S = 30.0, 20.0


def beat(**fields: Any) -> Heartbeat:
    values: dict[str, Any] = {
        "last_made": 5,
        "last_command": 1,
        "rows": 1,
        "pending": 0,
        "steps": 7,
        **fields,
    }
    return Heartbeat(generation=GenerationId("gen_1"), **values)


def engine_at(now: float, *beats: Heartbeat, unanswered: bool = False) -> Engine:
    """An engine whose heartbeats came a second apart, the last one ``now``."""
    engine = Engine()
    for ago, heartbeat in zip(range(len(beats) - 1, -1, -1), beats, strict=True):
        engine.beat(heartbeat, now - ago, unanswered=unanswered)
    return engine


def test_an_engine_with_rows_that_finishes_nothing_stands_still() -> None:
    assert engine_at(100, *[beat()] * 40).since == 61


def test_a_step_or_a_frame_is_progress() -> None:
    assert engine_at(100, beat(), beat(steps=8)).since == 100
    assert engine_at(100, beat(), beat(last_made=6)).since == 100


def test_nothing_to_do_is_no_standstill() -> None:
    idle = beat(rows=0)
    assert engine_at(100, *[idle] * 40).since == 100
    assert engine_at(100, *[idle] * 40, unanswered=True).since == 61
    assert engine_at(100, *[beat(rows=0, pending=1)] * 40).since == 61


def test_a_worker_that_is_paused_warming_or_loading_is_not_expected_to_get_on() -> None:
    for state in ("paused", "warming", "loading", "stopping"):
        assert engine_at(100, *[beat(state=state)] * 40).since == 100


def test_time_in_which_the_parent_did_not_run_is_given_back() -> None:
    engine = engine_at(100, *[beat()] * 40)
    engine.forgive(10)
    assert engine.since == 71


def test_the_limit_grows_with_the_slowest_chunk_and_with_preparation() -> None:
    assert stall_limit_s(beat(), STALL_S, PREPARE_S) == STALL_S
    assert stall_limit_s(beat(chunk_s_max=9), STALL_S, PREPARE_S) == 90
    assert stall_limit_s(beat(rows=0), STALL_S, PREPARE_S) == STALL_S + PREPARE_S
