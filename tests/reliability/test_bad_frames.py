"""Whatever bytes arrive, they are messages or they are malformed; and whatever messages say, a
session answers them, holds its own rules, and breaks neither process."""

import random
from contextlib import suppress
from typing import Any, Final

from app.dispatch.sessions import Session
from shared.codec import MalformedFrame, decode_to_parent, decode_to_worker, join_encoded
from shared.ids import GenerationId, StoreId
from shared.limits import PROTOCOL_VERSION
from shared.messages import ToParent, ToWorker
from tests.reliability.counts import NewCampaign
from tests.reliability.forging import Forger
from tests.unit.worker.link.talk import (
    CREDIT,
    EPOCH,
    GENERATION,
    STORE,
    answer,
    delta,
    serving_talk,
)
from worker.link.session import WorkerSession

FRAMES: Final = 100
"""Message parts for each session."""

KNOWN: Final[dict[str, tuple[Any, ...]]] = {
    "protocol": (PROTOCOL_VERSION,),
    "generation": (GENERATION,),
    "store": (STORE,),
    "epoch": (EPOCH, EPOCH + 1),
    "command": (0, 1, 2, 3),
    "job": ("job_1", "job_2"),
    "attempt": (1, 2),
    "seq": (1, 2, 3, 4, 5),
    "first_unacked": (0, 1, 2),
    "last_seq": (0, 1, 2),
    "body_parts": (1, 2, 2**40),
}


def test_a_parents_session_outlives_whatever_a_worker_says(campaign: NewCampaign) -> None:
    taken = [0]

    def one_session(seed: int) -> None:
        chance = random.Random(f"to the parent {seed}")
        forger = Forger(ToParent, chance, KNOWN)
        session = Session(GenerationId(GENERATION), EPOCH, StoreId(STORE))
        for now in range(FRAMES):
            with suppress(MalformedFrame):
                for message in decode_to_parent(forger.part()):
                    _parent_hears(session, message, float(now), chance)
        taken[0] += session.received

    sessions = campaign(small=50, large=50_000, unit=f"sessions of {FRAMES} parts")
    sessions.run(one_session)
    assert sessions.alone or taken[0] > sessions.done  # it was not all thrown away


def _parent_hears(session: Session, message: ToParent, now: float, chance: random.Random) -> None:
    before = session.received
    session.receive(message, now)
    assert session.received in (before, before + 1)
    assert session.committed <= session.received
    if chance.random() < 0.2:
        session.frame_committed(chance.randint(session.committed, session.received))
    session.pulse()


def test_a_workers_session_outlives_whatever_a_parent_says(campaign: NewCampaign) -> None:
    taken = [0]

    def one_session(seed: int) -> None:
        chance = random.Random(f"to the worker {seed}")
        forger = Forger(ToWorker, chance, KNOWN)
        session = serving_talk().session
        for now in range(1_000, 1_000 + FRAMES):
            with suppress(MalformedFrame):
                for message in decode_to_worker(forger.part()):
                    taken[0] += _worker_hears(session, message, float(now), chance)

    sessions = campaign(small=50, large=50_000, unit=f"sessions of {FRAMES} parts")
    sessions.run(one_session)
    assert sessions.alone or taken[0] > sessions.done


def _worker_hears(
    session: WorkerSession, message: ToWorker, now: float, chance: random.Random
) -> int:
    """How many commands it had for the engine."""
    epoch = session.epoch
    commands = session.receive(message, now)
    assert session.epoch >= epoch
    if chance.random() < 0.3:
        session.offer([delta(), answer(chance.randint(0, 3))], CREDIT)
    session.tick(now)
    while (sending := session.outgoing()) is not None:
        decode_to_parent(join_encoded(sending.messages))  # it says what is sound, whatever it heard
        session.sent(sending, now)
    session.ignored_by_reason()
    return len(commands)
