import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dispatch.sessions import (
    BecameReady,
    Broken,
    Effect,
    FrameReceived,
    Send,
    Session,
    SessionState,
)
from shared.ids import GenerationId, StoreId
from shared.limits import PROTOCOL_VERSION
from shared.messages import (
    Ack,
    Credit,
    Frame,
    Heartbeat,
    Hello,
    Identify,
    Ready,
    Replay,
    ToWorker,
    Welcome,
)

GEN = GenerationId("gen_1")
CREDIT = Credit(rows_free=4, kv_bytes_free=0, last_command=0)


def session(committed: int = 0) -> Session:
    return Session(GEN, epoch=7, store=StoreId("store"), committed=committed, received=committed)


def hello(first_unacked: int = 1, last_made: int = 0, protocol: int = PROTOCOL_VERSION) -> Hello:
    return Hello(protocol, GEN, 1, 1, first_unacked, last_made)


def frame(seq: int) -> Frame:
    return Frame(GEN, seq, CREDIT, ())


def heartbeat(last_made: int, last_command: int = 0) -> Heartbeat:
    return Heartbeat(GEN, last_made, last_command, 0, 0, 0)


def sent(effects: list[Effect]) -> list[ToWorker]:
    return [message for e in effects if isinstance(e, Send) for message in e.messages]


def greeted(committed: int = 0) -> Session:
    s = session(committed)
    s.receive(hello(committed + 1, committed), 0.0)
    return s


def test_a_hello_is_welcomed_with_what_is_committed() -> None:
    s = session(committed=5)
    assert sent(s.receive(hello(3, 9), 0.0)) == [Welcome(7, StoreId("store"), GEN, 5)]
    assert s.state is SessionState.GREETED


def test_another_protocol_is_refused_naming_both() -> None:
    (effect,) = session().receive(hello(protocol=99), 0.0)
    assert isinstance(effect, Broken)
    assert "99" in effect.reason
    assert str(PROTOCOL_VERSION) in effect.reason


def test_a_worker_that_forgot_uncommitted_frames_is_broken() -> None:
    (effect,) = session(committed=2).receive(hello(first_unacked=5, last_made=6), 0.0)
    assert isinstance(effect, Broken)


def test_a_ready_worker_is_announced() -> None:
    ready = Ready(GEN, 4, 100, "f", CREDIT)
    assert greeted().receive(ready, 0.0) == [BecameReady(ready)]


def test_frames_before_a_hello_are_answered_with_identify() -> None:
    assert sent(session().receive(frame(1), 0.0)) == [Identify(7)]


def test_a_repeated_frame_is_dropped_and_acknowledged() -> None:
    s = greeted()
    s.receive(frame(1), 0.0)
    s.frame_committed(1)
    assert s.receive(frame(1), 0.0) == [Send((Ack(7, 1),))]
    assert s.repeated_frames == 1


def test_a_gap_asks_for_the_missing_frames_once() -> None:
    s = greeted()
    s.receive(frame(1), 0.0)
    assert sent(s.receive(frame(3), 0.0)) == [Replay(7, 2)]
    assert s.receive(frame(4), 0.0) == []
    assert s.received == 1


def test_a_heartbeat_that_names_unseen_frames_asks_for_them() -> None:
    s = greeted()
    assert sent(s.receive(heartbeat(2), 0.0)) == [Replay(7, 1)]


def test_a_command_that_two_heartbeats_do_not_know_of_was_lost() -> None:
    s = greeted()
    s.receive(Ready(GEN, 1, 1, "", CREDIT, 0.0), 0.0)
    s.last_command = 3
    assert s.receive(heartbeat(0), 1.0) == []  # it may have been on its way
    assert sent(s.receive(heartbeat(0), 2.0)) == [Identify(7)]
    s.receive(hello(), 2.1)
    s.receive(Ready(GEN, 1, 1, "", CREDIT, 0.0), 2.1)
    assert s.receive(heartbeat(0), 3.0) == s.receive(heartbeat(0), 4.0) == []  # compared by now
    assert s.lost_commands == 1


def test_commands_that_arrive_are_not_asked_for() -> None:
    s = greeted()
    s.receive(Ready(GEN, 1, 1, "", CREDIT, 0.0), 0.0)
    for command in range(1, 5):
        assert s.receive(heartbeat(0, command - 1), float(command)) == []
        s.last_command = command


def test_nothing_a_closed_session_hears_counts() -> None:
    s = greeted()
    s.close()
    assert s.receive(frame(1), 0.0) == []
    assert s.receive(hello(), 0.0) == []


def test_after_a_reconnect_frames_already_taken_in_are_not_handed_up_again() -> None:
    s = greeted()
    s.receive(frame(1), 0.0)
    s.receive(frame(2), 0.0)
    s.frame_committed(1)
    assert sent(s.receive(hello(2, 2), 0.0)) == [Welcome(7, StoreId("store"), GEN, 1)]
    assert sent(s.receive(frame(2), 0.0)) == [Ack(7, 1)]
    assert s.receive(frame(3), 0.0) == [FrameReceived(frame(3))]


@given(st.lists(st.integers(min_value=1, max_value=12), max_size=60))
def test_whatever_arrives_frames_are_handed_up_once_and_in_order(arrivals: list[int]) -> None:
    s = greeted()
    seen = [
        effect.frame.seq
        for seq in arrivals
        for effect in s.receive(frame(seq), 0.0)
        if isinstance(effect, FrameReceived)
    ]
    assert seen == list(range(1, len(seen) + 1))


@pytest.mark.parametrize("seq", [0, 1])
def test_an_ack_names_what_is_committed(seq: int) -> None:
    assert greeted().frame_committed(seq) == Send((Ack(7, seq),))
