import msgspec

from app.domain.job import JobState
from app.storage.reports import JobReport, job_report
from shared.failures import Failure
from shared.ids import report_id
from tests.integration.storage.making import job_id, make_ending, make_job


def test_a_report_says_all_about_the_end_of_its_job() -> None:
    ending = make_ending(
        state=JobState.FAILED,
        finish_reason=None,
        failure=Failure(code="worker_crashed", message="It died.", retryable=True),
        complete=False,
    )
    report = job_report(make_job(tags={"team": "a"}), ending)
    payload = msgspec.json.decode(report.payload, type=JobReport)
    assert (report.outcome, report.reason, report.complete) == ("failed", "worker_crashed", False)
    assert payload.usage == ending.usage
    assert payload.failure is not None
    assert payload.failure.retryable
    assert (payload.attempts, payload.job_class, payload.tags) == (1, "background", {"team": "a"})
    assert payload.timings.finalized_at == ending.finalized_at


def test_the_id_depends_on_the_job_and_not_on_how_it_ended() -> None:
    done = job_report(make_job(), make_ending())
    cancelled = job_report(make_job(), make_ending(state=JobState.CANCELLED, finish_reason=None))
    assert done.id == cancelled.id == report_id("job", job_id(1))


def test_no_text_of_the_prompt_is_in_a_report() -> None:
    assert b"a prompt" not in job_report(make_job(), make_ending()).payload
