"""What the ends of its predecessors mean for a job."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.dependencies import Verdict, judge
from app.domain.job import JobState, OnFailure
from shared.failures import Failure
from shared.ids import JobId

ENDS = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)


def after(*outcomes: JobState | None) -> dict[JobId, JobState | None]:
    return {JobId(f"job_{n}"): outcome for n, outcome in enumerate(outcomes)}


outcomes = st.lists(st.sampled_from([None, *ENDS]), max_size=6).map(lambda found: after(*found))


def test_it_waits_while_any_is_open() -> None:
    assert judge(after(JobState.COMPLETED, None), OnFailure.FAIL) is Verdict.WAIT


def test_it_runs_when_all_have_completed() -> None:
    found = after(JobState.COMPLETED, JobState.COMPLETED)
    assert judge(found, OnFailure.FAIL) is Verdict.RUN


def test_it_fails_with_the_first_that_failed_though_others_are_open() -> None:
    verdict = judge(after(None, JobState.CANCELLED, JobState.FAILED), OnFailure.FAIL)
    assert isinstance(verdict, Failure)
    assert (verdict.code, verdict.retryable) == ("dependency_failed", False)
    assert "job_1, which ended cancelled" in verdict.message


@given(outcomes)
def test_where_it_runs_in_any_case_it_only_waits_for_the_end_of_all(
    found: dict[JobId, JobState | None],
) -> None:
    waits = None in found.values()
    assert judge(found, OnFailure.RUN) is (Verdict.WAIT if waits else Verdict.RUN)


@given(outcomes, st.sampled_from(OnFailure), st.data())
def test_a_verdict_that_has_fallen_stays_whatever_else_ends(
    found: dict[JobId, JobState | None], on_failure: OnFailure, data: st.DataObject
) -> None:
    verdict = judge(found, on_failure)
    later = {job: end or data.draw(st.sampled_from(ENDS)) for job, end in found.items()}
    if verdict is not Verdict.WAIT:
        assert type(judge(later, on_failure)) is type(verdict)
    assert judge(later, on_failure) is not Verdict.WAIT
