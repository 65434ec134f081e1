"""Commands: each obeyed once, forgotten when the parent knows the answer."""

import hashlib

import msgspec

from shared.codec import encode_body
from shared.failures import Failure
from shared.ids import CommandId, StoreId
from shared.messages import (
    Accepted,
    Ack,
    BodyPart,
    Finished,
    Frame,
    Heartbeat,
    Hello,
    Preempt,
    Refused,
    RunJob,
    Seal,
    Stopped,
)
from tests.unit.worker.link.talk import (
    CHAT,
    EPOCH,
    Talk,
    answer,
    cancel,
    delta,
    run_job,
    serving_talk,
)
from worker.link.commands import BODIES_OPEN_MAX

BODY = encode_body(CHAT)


def accepted(run: RunJob) -> Accepted:
    return Accepted(run.command, run.job, run.attempt, 3, 0, "d", 9)


def large(command: int, parts: int = 2, job: str = "job_1", digest: str | None = None) -> RunJob:
    """A command whose body follows in parts."""
    return msgspec.structs.replace(
        run_job(command, job),
        request=None,
        body_digest=digest or hashlib.sha256(BODY).hexdigest(),
        body_parts=parts,
    )


def part(command: int, n: int, data: bytes, of: int = 2) -> BodyPart:
    return BodyPart(EPOCH, CommandId(command), n, of, data)


def refusals(session: Talk) -> list[Refused]:
    frames = session.says_only(Frame)
    return [event for frame in frames for event in frame.events if isinstance(event, Refused)]


def test_a_command_sent_twice_is_obeyed_once() -> None:
    session = serving_talk()
    assert session.hears(run_job(1), run_job(1)) == [run_job(1)]
    assert session.session._desk.repeated == 1


def test_it_is_remembered_until_the_ack_that_covers_its_answer() -> None:
    session = serving_talk()
    session.hears(run_job(1))
    session.makes(delta())
    session.makes(accepted(run_job(1)))
    session.hears(Ack(EPOCH, 1))
    assert session.hears(run_job(1)) == []
    session.hears(Ack(EPOCH, 2))
    assert session.hears(run_job(1)) == [run_job(1)]


def test_a_cancel_is_answered_by_the_terminal_event_of_its_attempt() -> None:
    session = serving_talk()
    session.hears(run_job(1), cancel(2))
    assert session.hears(cancel(2)) == []
    session.makes(Finished(run_job(1).job, 1, 3, 0))
    assert session.hears(cancel(2)) == []
    session.hears(Ack(EPOCH, 1))
    assert session.hears(cancel(2)) == [cancel(2)]


def test_a_cancel_that_is_no_outbox_row_is_never_remembered() -> None:
    session = serving_talk()
    assert len(session.hears(cancel(0), cancel(0))) == 2


def test_preempt_and_seal_pass_once() -> None:
    session = serving_talk()
    preempt = Preempt(EPOCH, CommandId(3), run_job(1).job, 1)
    seal = Seal(EPOCH, CommandId(4))
    assert session.hears(preempt, preempt, seal, seal) == [preempt, seal]


def test_a_job_of_another_store_is_not_obeyed() -> None:
    session = serving_talk()
    foreign = msgspec.structs.replace(run_job(1), store=StoreId("other"))
    assert session.hears(foreign) == []
    assert session.session.ignored.foreign == 1


def test_the_heartbeat_names_the_highest_command() -> None:
    session = serving_talk()
    session.hears(run_job(7), cancel(5))
    session.passes(1.0)
    assert [beat.last_command for beat in session.says_only(Heartbeat)] == [7]


def test_without_room_a_command_is_left_and_the_parent_greeted_again_later() -> None:
    session = serving_talk()
    session.inbox_has_room = False
    assert session.hears(run_job(7)) == []
    session.passes(1.0)
    assert session.says_only(Hello) == []
    session.inbox_has_room = True
    session.passes(1.0)
    assert len(session.says_only(Hello)) == 1
    session.is_welcomed()
    assert session.hears(run_job(7)) == [run_job(7)]


def test_with_the_buffer_full_a_command_is_left() -> None:
    session = serving_talk(buffer_bytes=5_000)
    while not session.session.paused:
        session.makes(delta())
    assert session.hears(run_job(1)) == [run_job(1)]
    for _ in range(10):
        session.makes(answer(1))
    assert session.hears(run_job(2)) == []


def test_a_body_in_parts_becomes_the_whole_command() -> None:
    session = serving_talk()
    assert session.hears(large(1), part(1, 0, BODY[:4])) == []
    (whole,) = session.hears(part(1, 1, BODY[4:]))
    assert isinstance(whole, RunJob)
    assert whole.request == CHAT


def test_the_whole_command_is_obeyed_once() -> None:
    session = serving_talk()
    parts = (large(1), part(1, 0, BODY[:4]), part(1, 1, BODY[4:]))
    assert len(session.hears(*parts, *parts)) == 1


def test_a_body_cut_off_by_a_reconnect_is_taken_from_its_beginning() -> None:
    session = serving_talk()
    session.hears(large(1), part(1, 0, BODY[:4]))
    session.is_welcomed()
    assert len(session.hears(large(1), part(1, 0, BODY[:4]), part(1, 1, BODY[4:]))) == 1


def test_a_missing_part_gives_the_job_back() -> None:
    session = serving_talk()
    assert session.hears(large(1), part(1, 1, BODY[4:])) == []
    (refused,) = refusals(session)
    assert (refused.command, refused.kind) == (1, "later")


def test_a_body_with_another_digest_gives_the_job_back() -> None:
    session = serving_talk()
    session.hears(large(1, parts=1, digest="0" * 64), part(1, 0, BODY, of=1))
    assert [refused.kind for refused in refusals(session)] == ["later"]


def test_a_body_that_is_no_request_gives_the_job_back() -> None:
    session = serving_talk()
    digest = hashlib.sha256(b"rubbish").hexdigest()
    session.hears(large(1, parts=1, digest=digest), part(1, 0, b"rubbish", of=1))
    assert [refused.kind for refused in refusals(session)] == ["later"]


def test_too_many_parts_or_open_bodies_give_the_job_back() -> None:
    session = serving_talk()
    session.hears(large(1, parts=65), large(2, parts=0))
    session.hears(*(large(10 + n, job=f"job_{n}") for n in range(BODIES_OPEN_MAX + 1)))
    assert [refused.command for refused in refusals(session)] == [1, 2, 10 + BODIES_OPEN_MAX]


def test_a_cancel_while_the_body_is_on_its_way_ends_the_attempt() -> None:
    session = serving_talk()
    assert session.hears(large(1), part(1, 0, BODY[:4]), cancel(2)) == []
    (frame,) = session.says_only(Frame)
    assert frame.events == (Stopped(run_job(1).job, 1, "cancelled", 0, 0),)
    assert session.hears(part(1, 1, BODY[4:]), cancel(2), large(1)) == []


def test_parts_of_nothing_are_ignored() -> None:
    session = serving_talk()
    assert session.hears(part(9, 0, b"x")) == []


def test_a_refused_job_is_no_longer_held() -> None:
    session = serving_talk()
    session.hears(run_job(1))
    session.makes(Refused(CommandId(1), run_job(1).job, 1, "later", Failure("x", "y")))
    assert session.session._hello().held == ()
