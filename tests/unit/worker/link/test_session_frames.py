"""Frames: numbered without gaps, kept until acknowledged, sent again in windows."""

from hypothesis import given
from hypothesis import strategies as st

from shared.limits import FRAME_BYTES_MAX, REPLAY_WINDOW_FRAMES
from shared.messages import Ack, Frame, Heartbeat, Hello, Identify, ParentHeartbeat, Replay
from tests.unit.worker.link.talk import EPOCH, Talk, answer, delta, serving_talk
from worker.link.frame_buffer import FRAME_OVERHEAD_BYTES, FrameBuffer


def with_frames(count: int) -> Talk:
    session = serving_talk()
    for index in range(count):
        session.makes(delta(index))
    return session


def test_frames_are_numbered_from_one_and_sent_once() -> None:
    session = with_frames(3)
    assert session.frames() == [1, 2, 3]
    assert session.frames() == []


def test_frames_that_wait_together_leave_together() -> None:
    session = with_frames(10)
    sending = session.session.outgoing()
    assert sending is not None
    assert len(sending.messages) == 10


def test_what_the_socket_did_not_take_stays_due() -> None:
    session = with_frames(2)
    session.session.outgoing()
    assert session.frames() == [1, 2]


def test_a_part_is_cut_at_the_frame_limit() -> None:
    session = serving_talk()
    for _ in range(3):
        session.makes(delta(text="x" * (FRAME_BYTES_MAX // 2)))
    sending = session.session.outgoing()
    assert sending is not None
    assert len(sending.messages) == 1
    assert session.frames() == [1, 2, 3]


def test_events_too_large_for_one_frame_become_several_in_order() -> None:
    session = serving_talk()
    session.makes(*(delta(index, text="x" * (FRAME_BYTES_MAX // 3)) for index in range(5)))
    frames = session.says_only(Frame)
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    assert len(frames) > 1
    assert [event.index for f in frames for event in f.events] == [0, 1, 2, 3, 4]  # type: ignore[union-attr]


def test_replay_sends_from_the_number_asked_for() -> None:
    session = with_frames(5)
    session.says()
    session.hears(Replay(EPOCH, 3))
    assert session.frames() == [3, 4, 5]


def test_the_same_replay_asked_for_by_every_frame_behind_a_gap_is_obeyed_once() -> None:
    session = with_frames(5)
    session.says()
    session.hears(Replay(EPOCH, 3))
    session.says()
    session.hears(Replay(EPOCH, 3), Replay(EPOCH, 3))
    assert session.frames() == []
    session.now += 1.0
    session.hears(Replay(EPOCH, 3))
    assert session.frames() == [3, 4, 5]


def test_replay_goes_one_window_beyond_the_acknowledged_at_a_time() -> None:
    session = with_frames(200)
    session.says()
    session.hears(Identify(EPOCH))
    session.says()
    session.is_welcomed(10)
    assert session.frames() == list(range(11, 11 + REPLAY_WINDOW_FRAMES))
    session.hears(Ack(EPOCH, 30))
    assert session.frames() == list(range(75, 95))
    session.hears(Ack(EPOCH, 94))
    assert session.frames() == list(range(95, 159))
    session.hears(Ack(EPOCH, 158))
    assert session.frames() == list(range(159, 201))
    for index in range(100):
        session.makes(delta(index))
    assert session.frames() == list(range(201, 301))


def test_an_acknowledged_frame_is_never_sent_again() -> None:
    session = with_frames(5)
    session.says()
    session.hears(Ack(EPOCH, 3), Replay(EPOCH, 1))
    assert session.frames() == [4, 5]


def test_an_ack_of_frames_never_made_changes_nothing() -> None:
    session = with_frames(2)
    session.hears(Ack(EPOCH, 9))
    assert session.frames() == [1, 2]
    assert session.session.ignored.unexpected == 1


def test_hello_says_which_frames_are_kept() -> None:
    session = with_frames(5)
    session.hears(Ack(EPOCH, 3), Identify(EPOCH))
    (hello,) = session.says_only(Hello)
    assert (hello.first_unacked, hello.last_made) == (4, 5)
    session.is_welcomed(5)
    session.hears(Identify(EPOCH))
    (hello,) = session.says_only(Hello)
    assert (hello.first_unacked, hello.last_made) == (6, 5)


def test_a_parents_heartbeat_acknowledges_too() -> None:
    session = with_frames(3)
    session.says()
    session.hears(ParentHeartbeat(EPOCH, 3, 3, 0))
    assert session.session.flushed


def test_frames_that_the_parent_does_not_receive_for_long_are_sent_again() -> None:
    session = with_frames(3)
    session.says()
    for _ in range(4):
        session.hears(ParentHeartbeat(EPOCH, 1, 1, 0))
    assert session.frames() == [2, 3]


def test_a_full_buffer_pauses_and_an_ack_resumes() -> None:
    session = serving_talk(buffer_bytes=20_000)
    made = 0
    while not session.session.paused:
        session.makes(delta(made))
        made += 1
    assert made * FRAME_OVERHEAD_BYTES < 20_000
    session.vitals.state = "serving"
    session.passes(1.0)
    (heartbeat,) = session.says_only(Heartbeat)
    assert heartbeat.state == "paused"
    session.hears(Ack(EPOCH, made))
    assert not session.session.paused


def test_answers_find_room_in_a_paused_buffer() -> None:
    buffer = FrameBuffer(80_000)
    while not buffer.paused:
        buffer.append(b"x" * 1_000, ())
    assert not buffer.full
    assert buffer.bytes_max - buffer.bytes_used > 8_000


def test_the_buffer_counts_what_it_drops() -> None:
    buffer = FrameBuffer(80_000)
    for _ in range(5):
        buffer.append(b"x" * 100, ())
    buffer.drop_through(5)
    assert buffer.bytes_used == 0


@given(st.data())
def test_whatever_is_lost_every_frame_arrives_in_order_without_gaps(data: st.DataObject) -> None:
    """A parent that drops parts at random, restarts, and follows the frame rule."""
    session = serving_talk()
    received, made, epoch = 0, 0, EPOCH
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["make", "read", "lose", "restart", "ack"])):
            case "make":
                made += 1
                session.makes(delta(made))
            case "read":
                received = _read(session, received, epoch)
            case "lose":
                session.says()
            case "restart":
                epoch += 1
                session.hears(Identify(epoch))
                session.says()
                session.is_welcomed(received, epoch)
            case _:
                session.hears(Ack(epoch, received))
    for _ in range(10):
        session.now += 1.0
        session.hears(Replay(epoch, received + 1))
        received = _read(session, received, epoch)
    assert received == made


def _read(session: Talk, received: int, epoch: int) -> int:
    for frame in session.says_only(Frame):
        if frame.seq == received + 1:
            received += 1
        elif frame.seq > received + 1:
            session.hears(Replay(epoch, received + 1))
    session.hears(Ack(epoch, received))
    return received


def test_answers_of_commands_travel_like_all_frames() -> None:
    session = serving_talk()
    session.makes(answer(4))
    (frame,) = session.says_only(Frame)
    assert frame.events == (answer(4),)
