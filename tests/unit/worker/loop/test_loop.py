"""The loop's promises: one terminal event per attempt, whatever is asked and whatever breaks."""

from collections.abc import Sequence

import msgspec
import pytest

from shared.failures import Failure
from shared.ids import CommandId
from shared.launch import EXIT_ENGINE_LOST, EXIT_OK, EXIT_ORPHANED
from shared.messages import (
    Accepted,
    Answer,
    ChoiceResume,
    Delta,
    Event,
    Exit,
    Failed,
    Finish,
    Finished,
    Progress,
    Refused,
    Seal,
    Stopped,
)
from shared.totals import GenerationTotals
from tests.unit.worker.loop.bench import GENERATION, Bench, cancel, preempt, run_job
from worker.engine.engine import RowFailed, RowId, RowProgress
from worker.engine.sequence import text_digest
from worker.inbox import NotPrepared, Orphaned, Prepared, Resumed, Terminated, ToLoop
from worker.preparation import prompt_digest

HI = [ord("h"), ord("i")]


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_job_is_accepted_streamed_and_finished() -> None:
    bench = Bench()
    events = bench.does(run_job(1))
    assert events[0] == Accepted(CommandId(1), run_job(1).job, 1, 2, 0, prompt_digest(HI), 62)
    assert kinds(events) == ["Accepted", *["Delta"] * 4, "Finished"]
    assert [d.index for d in bench.said(Delta)] == [0, 1, 2, 3]
    assert [d.tokens for d in bench.said(Delta)] == [(97,), (98,), (99,), (0,)]
    assert bench.text() == "abc"
    assert events[-1] == Finished(run_job(1).job, 1, 4, 0)


def test_one_step_makes_one_frame_for_all_rows() -> None:
    bench = Bench()
    bench.does(run_job(1, "a"), run_job(2, "b"))
    for events, _ in bench.outlet.frames:
        if any(isinstance(event, Delta) for event in events):
            assert len([event for event in events if isinstance(event, Delta)]) == 2


def test_rows_that_have_drawn_nothing_wait_for_prompts_that_are_still_being_made() -> None:
    bench = Bench()
    bench.does(run_job(1, "a"), turns=1)
    bench.does(run_job(2, "b"))
    first, *_ = [events for events, _ in bench.outlet.frames if "Delta" in kinds(events)]
    assert kinds(first) == ["Delta", "Delta"]


def test_a_row_that_has_drawn_waits_for_no_prompt() -> None:
    bench = Bench()
    bench.does(run_job(1, "a"), turns=3)
    assert bench.said(Delta)
    bench.preparing.at_once = False
    before = len(bench.said(Delta))
    bench.does(run_job(2, "b"), turns=1)
    assert len(bench.said(Delta)) == before + 1


def test_rows_do_not_wait_long_for_a_prompt() -> None:
    bench = Bench()
    bench.does(run_job(1, "a"), turns=1)
    bench.preparing.at_once = False
    bench.does(run_job(2, "b"), turns=1)
    assert len(bench.said(Delta)) == 1


def test_acceptance_leaves_before_the_first_step() -> None:
    bench = Bench()
    bench.does(run_job(1))
    assert kinds(list(bench.outlet.frames[0][0])) == ["Accepted"]


def test_a_stop_string_ends_the_row_and_is_not_shown() -> None:
    bench = Bench()
    bench.engine.says = "one END two"
    events = bench.does(run_job(1, stop=("END",)), turns=20)
    assert bench.text() == "one "
    assert bench.engine.removed == [RowId(1)]
    assert events[-1] == Finished(run_job(1).job, 1, 7, 0)
    assert bench.said(Delta)[-1].parts[-1] == Finish("stop", "END")


def test_the_token_limit_ends_with_length() -> None:
    bench = Bench()
    bench.does(run_job(1, max_tokens=2))
    assert bench.said(Accepted)[0].max_tokens == 2
    assert bench.said(Delta)[-1].parts[-1] == Finish("length")


def test_max_tokens_is_clamped_to_the_room_left() -> None:
    bench = Bench()
    bench.does(run_job(1, max_tokens=1_000))
    assert bench.said(Accepted)[0].max_tokens == 62
    assert bench.engine.inserted[0].max_tokens == 62


def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers() -> None:
    bench = Bench()
    (refused,) = bench.does(run_job(1, prompt="x" * 64))
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.failure.code) == ("never", "context_length_exceeded")
    assert "maximum context length is 64 tokens" in refused.failure.message
    assert "resulted in 64 tokens" in refused.failure.message


def test_a_prompt_that_leaves_room_for_one_token_is_taken() -> None:
    bench = Bench()
    bench.does(run_job(1, prompt="x" * 63))
    assert bench.said(Accepted)[0].max_tokens == 1


def test_what_the_template_refuses_names_the_messages() -> None:
    bench = Bench()
    (refused,) = bench.does(run_job(1, prompt="refuse"))
    assert isinstance(refused, Refused)
    assert refused.failure == Failure("template_error", "roles must alternate", param="messages")


def test_what_the_engine_refuses_ends_that_job() -> None:
    bench = Bench()
    bench.engine.refuses = "token 300 is out of the vocabulary"
    (refused,) = bench.does(run_job(1))
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.failure.code) == ("never", "invalid_value")
    assert bench.rows.credit.rows_free == 4


def test_more_jobs_than_rows_and_prefetch_are_given_back() -> None:
    bench = Bench(rows=1, prefetch=1)
    events = bench.does(run_job(1, "a"), run_job(2, "b"), run_job(3, "c"), turns=1)
    refused = [event for event in events if isinstance(event, Refused)]
    assert [(r.job, r.kind) for r in refused] == [("c", "later")]


def test_waiting_jobs_get_rows_in_the_order_of_their_commands() -> None:
    bench = Bench(rows=1, prefetch=3)
    bench.preparing.at_once = False
    bench.does(run_job(1, "a"), run_job(2, "b"), run_job(3, "c"), turns=1)
    bench.preparing.waiting.reverse()
    bench.preparing.finish()
    bench.turn(30)
    assert [a.job for a in bench.said(Accepted)] == ["a", "b", "c"]


def test_credit_counts_what_is_held_and_names_the_last_command() -> None:
    bench = Bench(rows=2, prefetch=2)
    bench.does(run_job(7), turns=2)
    _, credit = bench.outlet.frames[0]
    assert (credit.rows_free, credit.last_command) == (3, 7)
    bench.turn(10)
    _, credit = bench.outlet.frames[-1]
    assert (credit.rows_free, credit.last_command) == (4, 7)


@pytest.mark.parametrize("stage", ["preparing", "waiting", "running"])
def test_a_cancel_takes_effect_at_every_stage(stage: str) -> None:
    bench = Bench(rows=1, prefetch=2)
    if stage == "waiting":
        bench.does(run_job(1, "other"), turns=2)
    bench.preparing.at_once = stage != "preparing"
    bench.does(run_job(2, "job_1"), turns=2)
    events = bench.does(cancel(3), turns=1)
    stopped = [event for event in events if isinstance(event, Stopped)]
    tokens = len([delta for delta in bench.said(Delta) if delta.job == "job_1"])
    assert stopped == [Stopped(run_job(1).job, 1, "cancelled", tokens, 0)]
    assert (tokens > 0) == (stage == "running")
    bench.preparing.finish()
    after = bench.does(turns=10)
    assert [e for e in after if getattr(e, "job", "") == "job_1"] == []


def test_a_cancel_in_the_same_hand_over_as_its_job_stops_it_before_it_is_prepared() -> None:
    bench = Bench()
    events = bench.does(run_job(1), cancel(2))
    assert kinds(events) == ["Stopped"]


def test_preempt_gives_the_row_back() -> None:
    bench = Bench()
    bench.does(run_job(1), turns=2)
    (stopped,) = [e for e in bench.does(preempt(2)) if isinstance(e, Stopped)]
    assert (stopped.reason, stopped.completion_tokens) == ("preempted", 1)


def test_a_stop_for_what_is_not_here_is_answered_so() -> None:
    bench = Bench()
    assert bench.does(cancel(5), preempt(6)) == [
        Answer(CommandId(5), "not_held"),
        Answer(CommandId(6), "not_held"),
    ]


def test_a_stop_that_is_no_outbox_row_gets_no_answer() -> None:
    assert Bench().does(cancel(0)) == []


def test_a_cancel_of_another_attempt_leaves_the_row_alone() -> None:
    bench = Bench()
    events = bench.does(run_job(1, attempt=2), cancel(2, attempt=1))
    assert "Finished" in kinds(events)
    assert Answer(CommandId(2), "not_held") in events


def test_a_lower_attempt_is_stale() -> None:
    bench = Bench()
    bench.does(run_job(1, attempt=2))
    (refused,) = bench.does(run_job(2, attempt=1))
    assert isinstance(refused, Refused)
    assert refused.kind == "stale"


def test_an_attempt_that_has_ended_does_not_run_again() -> None:
    bench = Bench()
    bench.does(run_job(1))
    (refused,) = bench.does(run_job(2))
    assert isinstance(refused, Refused)
    assert refused.kind == "stale"


def test_a_higher_attempt_takes_the_place_of_a_lower_one() -> None:
    bench = Bench(rows=1, prefetch=0)
    bench.does(run_job(1), turns=2)
    events = bench.does(run_job(2, attempt=2))
    assert events[0] == Stopped(run_job(1).job, 1, "exit", 1, 0)
    assert events[-1] == Finished(run_job(1).job, 2, 4, 0)


def test_the_same_attempt_under_another_command_is_accepted_once_more_and_runs_once() -> None:
    bench = Bench()
    bench.does(run_job(1), turns=2)
    events = bench.does(run_job(2))
    assert [e.command for e in events if isinstance(e, Accepted)] == [2]
    assert len(bench.engine.inserted) == 1
    assert bench.loop._attempts.totals.attempts == 1


def test_a_failing_row_fails_alone() -> None:
    bench = Bench()
    failure = Failure("engine_error", "bad row", retryable=True)
    bench.does(run_job(1, "a"), run_job(2, "b"), turns=2)
    bench.engine.failing[RowId(1)] = RowFailed(RowId(1), failure)
    events = bench.does()
    assert [e for e in events if isinstance(e, Failed)] == [
        Failed(run_job(1, "a").job, 1, failure, 1, 0)
    ]
    assert bench.text("b") == "abc"


def test_a_job_that_breaks_the_loop_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.does(run_job(1, "a"), run_job(2, "b"), turns=2)
    victim = bench.rows.at(RowId(1))
    assert victim is not None
    assert victim.text is not None
    victim.text.close("stop")
    events = bench.does()
    (failed,) = [e for e in events if isinstance(e, Failed)]
    assert (failed.job, failed.failure.code) == ("a", "internal_error")
    assert bench.text("b") == "abc"


def test_a_lost_engine_fails_its_rows_gives_back_the_rest_and_ends_the_worker() -> None:
    bench = Bench(rows=1, prefetch=1)
    bench.does(run_job(1, "a"), run_job(2, "b"), turns=2)
    bench.engine.lost = True
    assert bench.loop.run() == EXIT_ENGINE_LOST
    (failed,) = bench.said(Failed)
    assert (failed.job, failed.failure.code, failed.failure.retryable) == (
        "a",
        "engine_error",
        True,
    )
    assert [(s.job, s.reason) for s in bench.said(Stopped)] == [("b", "exit")]


def test_a_step_that_raises_fails_its_rows_and_the_worker_goes_on() -> None:
    bench = Bench(rows=1, prefetch=1)
    bench.does(run_job(1, "a"), run_job(2, "b"), turns=2)
    bench.engine.raises = 1
    events = bench.does()
    (failed,) = [e for e in events if isinstance(e, Failed)]
    assert (failed.job, failed.failure.code) == ("a", "engine_error")
    assert bench.text("b") == "abc"


def test_steps_that_raise_one_after_the_other_lose_the_engine() -> None:
    bench = Bench(rows=1, prefetch=1)
    bench.does(run_job(1, "a"), run_job(2, "b"), turns=2)
    bench.engine.raises = 2
    assert bench.loop.run() == EXIT_ENGINE_LOST
    assert [f.job for f in bench.said(Failed)] == ["a", "b"]


@pytest.mark.parametrize(
    ("message", "exit_code"),
    [
        pytest.param(Exit(1, GENERATION), EXIT_OK, id="exit"),
        pytest.param(Terminated(), EXIT_OK, id="sigterm"),
        pytest.param(Orphaned(), EXIT_ORPHANED, id="orphaned"),
    ],
)
def test_leaving_stops_everything_held(message: ToLoop, exit_code: int) -> None:
    bench = Bench(rows=1, prefetch=2)
    bench.does(run_job(1, "a"), run_job(2, "b"), turns=2)
    bench.tell(message, run_job(3, "c"))
    assert bench.loop.run() == exit_code
    assert [(s.job, s.reason) for s in bench.said(Stopped)] == [("a", "exit"), ("b", "exit")]
    assert bench.vitals.state == "stopping"
    assert bench.outlet.frames[-1][1].rows_free == 0


def test_without_room_for_frames_no_step_is_made_but_cancels_are_obeyed() -> None:
    bench = Bench()
    bench.does(run_job(1), turns=2)
    bench.outlet.may_step = False
    steps = bench.vitals.steps
    assert kinds(bench.does(Resumed(), turns=5)) == []
    assert bench.vitals.steps == steps
    assert kinds(bench.does(cancel(2), turns=1)) == ["Stopped"]


def test_it_goes_on_when_there_is_room_again() -> None:
    bench = Bench()
    bench.does(run_job(1), turns=2)
    bench.outlet.may_step = False
    bench.turn()
    bench.outlet.may_step = True
    assert kinds(bench.does(Resumed()))[-1] == "Finished"


def test_prefill_progress_is_told() -> None:
    bench = Bench()
    bench.engine.progress = [RowProgress(RowId(1), 2, 2), RowProgress(RowId(9), 1, 1)]
    events = bench.does(run_job(1))
    assert [e for e in events if isinstance(e, Progress)] == [Progress(run_job(1).job, 1, 2, 2)]


def test_preparing_for_too_long_refuses_that_job_for_good() -> None:
    bench = Bench()
    bench.preparing.at_once = False
    bench.does(run_job(1, "a"), turns=1)
    bench.preparing.late = list(bench.preparing.waiting)
    (refused,) = bench.does(turns=3)
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.failure.code) == ("never", "prepare_timeout")
    assert bench.does(Prepared(run_job(1, "a").job, 1, HI, "d")) == []


def test_a_thread_that_never_comes_back_costs_the_worker_and_no_other_job() -> None:
    bench = Bench()
    bench.preparing.at_once = False
    bench.tell(run_job(1, "a"))
    bench.preparing.is_stuck = True
    assert bench.loop.run() == EXIT_ENGINE_LOST
    assert [(s.job, s.reason) for s in bench.said(Stopped)] == [("a", "exit")]


def test_a_result_for_what_has_gone_changes_nothing() -> None:
    bench = Bench()
    late = NotPrepared(run_job(1).job, 1, Failure("template_error", "x"))
    assert bench.does(Prepared(run_job(1).job, 1, HI, "d"), late) == []


def test_seal_tells_the_generations_own_totals() -> None:
    bench = Bench()
    bench.does(run_job(1))
    (answer,) = bench.does(Seal(1, CommandId(9)))
    assert isinstance(answer, Answer)
    assert answer.code == "sealed"
    totals = msgspec.msgpack.decode(answer.body, type=GenerationTotals)
    assert totals == GenerationTotals(1, 2, 0, 4)


def test_vitals_follow_the_work() -> None:
    bench = Bench(rows=1)
    bench.does(run_job(1, "a"), run_job(2, "b"), turns=2)
    assert (bench.vitals.rows, bench.vitals.pending, bench.vitals.steps) == (1, 1, 1)


# --- resuming -----------------------------------------------------------------------------------


def resumed(tokens: str, shown: str, **more: object) -> ChoiceResume:
    choice = ChoiceResume(
        0,
        tuple(map(ord, tokens)),
        items=1 if shown else 0,
        emitted_chars=len(shown),
        emitted_digest=text_digest(shown) if shown else "",
    )
    return msgspec.structs.replace(choice, **more)


def test_a_resumed_job_goes_on_behind_its_last_token() -> None:
    bench = Bench()
    run = msgspec.structs.replace(
        run_job(1, attempt=2), resume=(resumed("ab", "ab"),), prompt_digest=prompt_digest(HI)
    )
    events = bench.does(run)
    assert [d.index for d in bench.said(Delta)] == [2, 3]
    assert bench.text() == "c"
    assert events[-1] == Finished(run.job, 2, 2, 0)
    assert bench.engine.inserted[0].replayed == (97, 98)
    assert bench.engine.inserted[0].max_tokens == 60


def test_what_was_journaled_but_not_shown_is_shown_first() -> None:
    bench = Bench()
    bench.does(msgspec.structs.replace(run_job(1, attempt=2), resume=(resumed("ab", "a"),)))
    first = bench.said(Delta)[0]
    assert (first.index, first.tokens) == (2, ())
    assert bench.text() == "bc"


def test_a_resume_that_is_at_its_end_finishes_without_a_step() -> None:
    bench = Bench()
    run = msgspec.structs.replace(
        run_job(1, attempt=2, max_tokens=2), resume=(resumed("ab", "ab"),)
    )
    events = bench.does(run)
    assert kinds(events) == ["Accepted", "Delta", "Finished"]
    assert bench.said(Delta)[0].parts[-1] == Finish("length")
    assert bench.engine.inserted == []


def test_a_resume_that_gives_other_text_is_never_rewritten() -> None:
    bench = Bench()
    run = msgspec.structs.replace(run_job(1, attempt=2), resume=(resumed("ab", "xy"),))
    (refused,) = bench.does(run)
    assert isinstance(refused, Refused)
    assert refused.failure.code == "resume_diverged"


@pytest.mark.parametrize("change", [{"prompt_digest": "other"}, {"fingerprint": "other"}])
def test_a_resume_on_a_changed_model_is_refused(change: dict[str, str]) -> None:
    bench = Bench()
    run = msgspec.structs.replace(run_job(1, attempt=2), resume=(resumed("ab", "ab"),), **change)
    (refused,) = bench.does(run)
    assert isinstance(refused, Refused)
    assert refused.failure.code == "model_changed"


def test_a_job_that_is_prepared_gets_the_row_at_once_when_all_rows_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(rows=1)
    bench.does(run_job(1, "one"), run_job(2, "two"), turns=2)

    def waits(_now: float) -> float:
        pytest.fail("it waits")

    monkeypatch.setattr(bench.preparing, "patience_s", waits)
    while len(bench.said(Finished)) < 2:
        bench.loop.turn()
    assert [event.job for event in bench.said(Finished)] == ["one", "two"]
