import pytest

from app.domain.gate import (
    TRANSITIONS,
    Gate,
    GateEvent,
    GateMoved,
    GateRefused,
    next_gate,
    sources,
)


def test_every_state_of_the_gate_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Gate)


def test_only_serving_admits() -> None:
    assert [gate for gate in Gate if gate.admits] == [Gate.SERVING]


@pytest.mark.parametrize(
    ("gate", "event", "after"),
    [
        (Gate.LOADING, GateEvent.LOADED, Gate.SERVING),
        (Gate.LOADING, GateEvent.STOP, Gate.STOPPING),
        (Gate.SERVING, GateEvent.REBUILD, Gate.REBUILDING),
        (Gate.REBUILDING, GateEvent.REBUILT, Gate.SERVING),
        (Gate.REBUILDING, GateEvent.REBUILD_UNSENT, Gate.SERVING),
        (Gate.REBUILDING, GateEvent.REBUILD_OVERDUE, Gate.REBUILDING),
        (Gate.STOPPING, GateEvent.STOP, Gate.STOPPING),
    ],
)
def test_a_gate_moves_as_the_table_says(gate: Gate, event: GateEvent, after: Gate) -> None:
    assert next_gate(gate, event) is after


@pytest.mark.parametrize("gate", [Gate.STOPPING, Gate.FAILED])
def test_a_load_that_ends_late_opens_nothing(gate: Gate) -> None:
    assert next_gate(gate, GateEvent.LOADED) is gate


@pytest.mark.parametrize(
    "event", [GateEvent.REBUILT, GateEvent.REBUILD_UNSENT, GateEvent.REBUILD_OVERDUE]
)
def test_a_late_word_of_a_rebuild_brings_nothing_back_that_failed(event: GateEvent) -> None:
    assert next_gate(Gate.FAILED, event) is Gate.FAILED


@pytest.mark.parametrize(
    ("gate", "event", "said"),
    [
        (Gate.REBUILDING, GateEvent.STOP, "a worker that is rebuilding cannot stop"),
        (Gate.LOADING, GateEvent.REBUILD, "a worker that is loading cannot rebuild"),
        (Gate.STOPPING, GateEvent.REBUILD, "a worker that is stopping cannot rebuild"),
        (Gate.FAILED, GateEvent.REBUILD, "a worker that is failed cannot rebuild"),
        (Gate.SERVING, GateEvent.REBUILT, "a worker that is serving cannot rebuilt"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(gate: Gate, event: GateEvent, said: str) -> None:
    with pytest.raises(GateRefused, match=said):
        next_gate(gate, event)


def test_a_gate_that_was_moved_meanwhile_is_not_moved_again() -> None:
    with pytest.raises(GateMoved, match="was serving and is stopping"):
        next_gate(Gate.STOPPING, GateEvent.REBUILD, expected=Gate.SERVING)


def test_what_sql_compares_with_follows_from_the_table() -> None:
    assert sources(GateEvent.LOADED, Gate.SERVING) == (Gate.LOADING,)
    assert sources(GateEvent.STOP, Gate.STOPPING) == (Gate.LOADING, Gate.SERVING)
