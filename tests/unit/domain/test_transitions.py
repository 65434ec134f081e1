import pytest

from app.domain.job import FINAL_STATES, JobState, StopReason
from app.domain.transitions import (
    TRANSITIONS,
    IllegalTransition,
    JobEvent,
    failed,
    finished,
    next_state,
    refused,
    stopped,
)
from app.domain.worker_state import (
    IllegalWorkerTransition,
    WorkerEvent,
    WorkerState,
    next_worker_state,
)
from shared.failures import Failure

BOOM = Failure(code="engine_error", message="boom", retryable=True)


def test_every_state_has_a_row_and_final_states_have_no_way_out() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert all(not TRANSITIONS[state] for state in FINAL_STATES)


@pytest.mark.parametrize("state", FINAL_STATES)
@pytest.mark.parametrize("event", JobEvent)
def test_nothing_moves_a_final_job(state: JobState, event: JobEvent) -> None:
    with pytest.raises(IllegalTransition):
        next_state(state, event)


def test_only_an_available_job_can_be_claimed() -> None:
    able = {state for state in JobState if JobEvent.CLAIM in TRANSITIONS[state]}
    assert able == {JobState.AVAILABLE}


def test_work_that_is_done_is_completed_also_with_a_cancel_or_deadline_pending() -> None:
    assert finished(None)[0] is JobState.COMPLETED
    assert finished(StopReason.CANCEL)[0] is JobState.COMPLETED
    assert finished(StopReason.DEADLINE)[0] is JobState.COMPLETED


def test_work_whose_parent_was_lost_is_failed_also_when_done() -> None:
    state, failure = finished(StopReason.PARENT_LOST)
    assert state is JobState.FAILED
    assert failure is not None
    assert failure.code == "parent_lost"


def test_a_pending_stop_decides_over_a_failure() -> None:
    assert failed(BOOM, StopReason.CANCEL) == (JobState.CANCELLED, None)
    assert failed(BOOM, None) == (JobState.FAILED, BOOM)
    state, failure = failed(BOOM, StopReason.DEADLINE)
    assert state is JobState.FAILED
    assert failure is not None
    assert failure.code == "deadline_exceeded"


def test_a_refusal_keeps_its_own_reason_unless_cancelled() -> None:
    assert refused(BOOM, StopReason.DEADLINE) == (JobState.FAILED, BOOM)
    assert refused(BOOM, StopReason.CANCEL) == (JobState.CANCELLED, None)


def test_a_cancelled_job_has_no_failure() -> None:
    assert stopped(StopReason.CANCEL) == (JobState.CANCELLED, None)


def test_a_lost_worker_only_dies() -> None:
    lost = next_worker_state(WorkerState.READY, WorkerEvent.LOSE)
    assert next_worker_state(lost, WorkerEvent.DIE) is WorkerState.GONE
    with pytest.raises(IllegalWorkerTransition):
        next_worker_state(lost, WorkerEvent.READY)
