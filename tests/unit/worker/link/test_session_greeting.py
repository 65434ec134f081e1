"""How a session comes to be welcomed, and by whom."""

import pytest

from shared.ids import GenerationId, StoreId
from shared.messages import (
    Credit,
    Exit,
    Heartbeat,
    Held,
    Hello,
    Identify,
    Loading,
    ParentHeartbeat,
    Ready,
    Welcome,
)
from tests.unit.worker.link.talk import (
    EPOCH,
    GENERATION,
    STORE,
    answer,
    delta,
    run_job,
    serving_talk,
    talk,
)
from worker.link.session_state import TRANSITIONS, Happening, IllegalTransition, State, next_state

READY = Ready(GENERATION, 4, 512, "fp", Credit(6, 1, 0))


def test_the_first_word_is_hello_and_nothing_follows_it() -> None:
    session = talk()
    session.makes(delta())
    (hello,) = session.says()
    assert hello == Hello(1, GENERATION, 42, 99, 1, 1, (), 0, StoreId(""))
    assert session.says() == []


def test_a_welcome_opens_the_way_for_frames() -> None:
    session = talk()
    session.makes(delta())
    session.says()
    session.is_welcomed()
    assert session.frames() == [1]


def test_ready_is_said_after_each_welcome_with_the_credit_of_that_moment() -> None:
    session = serving_talk()
    session.session.announce(READY)
    assert session.says_only(Ready) == [READY]
    session.makes(delta())
    session.is_welcomed()
    (again,) = session.says_only(Ready)
    assert again.credit == Credit(4, 100, 0)


def test_ready_waits_for_the_welcome() -> None:
    session = talk()
    session.session.announce(READY)
    assert session.says_only(Ready) == []
    session.is_welcomed()
    assert session.says_only(Ready) == [READY]


def test_only_the_latest_loading_is_said_and_none_after_ready() -> None:
    session = serving_talk()
    session.session.announce(Loading(GENERATION, "weights", 1, 3))
    session.session.announce(Loading(GENERATION, "weights", 2, 3))
    assert session.says() == [Loading(GENERATION, "weights", 2, 3)]
    session.session.announce(Loading(GENERATION, "weights", 3, 3))
    session.session.announce(READY)
    assert session.says() == [READY]


def test_identify_makes_it_say_hello_again_with_what_it_holds() -> None:
    session = serving_talk()
    session.hears(run_job(5, "job_9", 2))
    session.makes(delta())
    session.says()
    session.hears(Identify(EPOCH + 1))
    (hello,) = session.says()
    assert hello == Hello(
        1, GENERATION, 42, 99, 1, 1, (Held(run_job(5, "job_9").job, 2),), 3, STORE
    )


def test_frames_stop_until_the_new_parent_has_welcomed_it() -> None:
    session = serving_talk()
    session.hears(Identify(EPOCH + 1))
    session.makes(delta())
    assert session.frames() == []
    session.is_welcomed(epoch=EPOCH + 1)
    assert session.frames() == [1]


def test_one_hello_answers_every_identify_that_was_on_its_way() -> None:
    session = serving_talk()
    session.hears(Identify(EPOCH))
    session.says()
    session.hears(Identify(EPOCH), Identify(EPOCH))
    assert session.says() == []
    session.now += 1.0
    session.hears(Identify(EPOCH))
    assert [type(message) for message in session.says()] == [Hello]


def test_a_word_from_a_newer_parent_makes_it_say_hello() -> None:
    session = serving_talk()
    session.hears(ParentHeartbeat(EPOCH + 1, 0, 0, 0))
    assert [type(message) for message in session.says()] == [Hello]


def test_hello_is_repeated_while_no_welcome_comes() -> None:
    session = talk()
    session.says()
    session.passes(1.0)
    assert [type(message) for message in session.says()] == [Heartbeat]
    session.passes(1.0)
    session.passes(1.0)
    assert next(type(message) for message in session.says()) is Hello


@pytest.mark.parametrize(
    "welcome",
    [
        pytest.param(Welcome(EPOCH - 1, STORE, GENERATION, 0), id="lower epoch"),
        pytest.param(Welcome(EPOCH, StoreId("other"), GENERATION, 0), id="other store"),
        pytest.param(Welcome(EPOCH, STORE, GenerationId("gen_2"), 0), id="other generation"),
        pytest.param(Welcome(EPOCH, STORE, GENERATION, 5), id="frames never made"),
    ],
)
def test_a_wrong_welcome_is_refused(welcome: Welcome) -> None:
    session = talk()
    session.says()
    assert session.hears(welcome) == []
    assert session.session.state is State.GREETING


def test_a_higher_epoch_is_adopted_and_the_lower_one_no_longer_obeyed() -> None:
    session = serving_talk()
    session.is_welcomed(epoch=EPOCH + 2)
    assert session.hears(run_job(1)) == []
    assert session.session.ignored.stale == 1
    assert len(session.hears(run_job(1, epoch=EPOCH + 2))) == 1


def test_a_command_before_the_welcome_is_not_obeyed() -> None:
    session = talk()
    session.says()
    assert session.hears(run_job(1)) == []


def test_exit_is_for_one_generation_and_obeyed_from_any_epoch_not_lower() -> None:
    session = talk()
    assert session.hears(Exit(EPOCH, GenerationId("gen_2"))) == []
    assert session.hears(Exit(EPOCH - 1, GENERATION)) == []
    assert session.hears(Exit(EPOCH + 1, GENERATION)) == [Exit(EPOCH + 1, GENERATION)]


def test_heartbeats_say_how_the_engine_is() -> None:
    session = serving_talk()
    session.hears(run_job(5))
    session.makes(delta())
    session.vitals.rows, session.vitals.steps, session.vitals.state = 2, 9, "serving"
    session.passes(1.0)
    (heartbeat,) = session.says_only(Heartbeat)
    assert heartbeat == Heartbeat(GENERATION, 1, 5, 2, 0, 9, 0.0, "serving", 1234)


def test_a_heartbeat_that_could_not_be_sent_is_not_said_twice_later() -> None:
    session = serving_talk()
    session.passes(1.0)
    session.passes(1.0)
    session.passes(1.0)
    assert len(session.says_only(Heartbeat)) == 1


def test_silence_for_the_grace_makes_an_orphan_once() -> None:
    session = serving_talk(grace_s=2.5)
    assert [len(session.passes(1.0)) for _ in range(5)] == [0, 0, 1, 0, 0]
    session.is_welcomed()
    assert session.session.state is State.ORPHANED
    assert session.says() == []


def test_any_word_of_the_parent_ends_the_silence() -> None:
    session = serving_talk(grace_s=2.5)
    for _ in range(10):
        assert session.passes(1.0) == ()
        session.hears(ParentHeartbeat(EPOCH, 0, 0, 0))


def test_a_word_of_an_older_parent_does_not() -> None:
    session = serving_talk(grace_s=1.5)
    session.passes(1.0)
    session.hears(ParentHeartbeat(EPOCH - 1, 0, 0, 0))
    assert len(session.passes(1.0)) == 1


def test_time_in_which_the_process_was_stopped_is_no_silence() -> None:
    session = serving_talk(grace_s=60)
    assert session.passes(3_600.0) == ()
    assert session.passes(1.0) == ()


def test_an_orphan_does_not_ask_to_be_woken_at_once_for_ever() -> None:
    session = serving_talk(grace_s=1.0)
    session.passes(2.0)
    session.passes(1.0)
    assert session.session.wake_at > session.now


def test_answers_end_what_is_held() -> None:
    session = serving_talk()
    session.hears(run_job(5))
    session.makes(answer(9))
    session.hears(Identify(EPOCH))
    (hello,) = session.says_only(Hello)
    assert [held.job for held in hello.held] == ["job_1"]


def test_every_pair_of_the_table_leads_somewhere_and_others_are_our_fault() -> None:
    for state in State:
        for happening in Happening:
            if happening in TRANSITIONS[state]:
                assert next_state(state, happening) in State
            else:
                with pytest.raises(IllegalTransition, match=state.name):
                    next_state(state, happening)
