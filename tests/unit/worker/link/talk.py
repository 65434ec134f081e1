"""A session with the parent's side spelled out, for the tests beside this file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from shared.codec import decode_to_parent, join_encoded
from shared.ids import CommandId, GenerationId, JobId, StoreId
from shared.launch import EngineSettings, LaunchRecord
from shared.messages import (
    Answer,
    Cancel,
    Credit,
    Delta,
    Event,
    Frame,
    RunJob,
    Text,
    ToParent,
    ToWorker,
    Welcome,
)
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams
from worker.inbox import Command, Orphaned
from worker.link.session import ProcessFacts, WorkerSession
from worker.vitals import Vitals

GENERATION = GenerationId("gen_1")
STORE = StoreId("store")
EPOCH = 3
CREDIT = Credit(4, 100, 0)
CHAT = ChatRequest(messages=(ChatMessage("user", "hi"),), sampling=SamplingParams(seed=1))

_Kind = TypeVar("_Kind", bound=ToParent)


def launch_record(
    *, grace_s: float = 60.0, buffer_bytes: int = 64 * 1024 * 1024, endpoint: str = "ipc:///none"
) -> LaunchRecord:
    return LaunchRecord(
        generation=GENERATION,
        store=STORE,
        epoch=EPOCH,
        model="tiny",
        endpoint=endpoint,
        cache_dir="/nowhere",
        engine=EngineSettings(model_path="/nowhere"),
        orphan_grace_s=grace_s,
        frame_buffer_bytes_max=buffer_bytes,
    )


def run_job(command: int, job: str = "job_1", attempt: int = 1, epoch: int = EPOCH) -> RunJob:
    return RunJob(epoch, STORE, CommandId(command), JobId(job), attempt, 1_700_000_000, CHAT)


def cancel(command: int, job: str = "job_1", attempt: int = 1) -> Cancel:
    return Cancel(EPOCH, CommandId(command), JobId(job), attempt)


def delta(index: int = 0, job: str = "job_1", text: str = "x") -> Delta:
    return Delta(JobId(job), 1, 0, index, (7,), (Text(text),))


def answer(command: int) -> Answer:
    return Answer(CommandId(command), "not_held")


@dataclass
class Talk:
    """The session under test, a clock, and what it has said."""

    session: WorkerSession
    vitals: Vitals
    now: float = 1_000.0
    inbox_has_room: bool = True
    said: list[ToParent] = field(default_factory=list[ToParent])

    def hears(self, *messages: ToWorker) -> list[Command]:
        return [c for message in messages for c in self.session.receive(message, self.now)]

    def passes(self, seconds: float) -> Sequence[Orphaned]:
        self.now += seconds
        return self.session.tick(self.now)

    def says(self) -> list[ToParent]:
        """Everything due now, as taken by a socket that is never full."""
        fresh: list[ToParent] = []
        while (sending := self.session.outgoing()) is not None:
            fresh.extend(decode_to_parent(join_encoded(sending.messages)))
            self.session.sent(sending, self.now)
        self.said.extend(fresh)
        return fresh

    def says_only(self, kind: type[_Kind]) -> list[_Kind]:
        return [message for message in self.says() if isinstance(message, kind)]

    def frames(self) -> list[int]:
        return [frame.seq for frame in self.says_only(Frame)]

    def makes(self, *events: Event) -> None:
        self.session.offer(events, CREDIT)

    def is_welcomed(self, last_seq: int = 0, epoch: int = EPOCH) -> None:
        self.hears(Welcome(epoch, STORE, GENERATION, last_seq))


def talk(*, grace_s: float = 60.0, buffer_bytes: int = 64 * 1024 * 1024) -> Talk:
    """A session that has said nothing yet."""
    vitals = Vitals()
    facts = ProcessFacts(42, 99, lambda: 1234)
    made: list[Talk] = []
    session = WorkerSession(
        launch_record(grace_s=grace_s, buffer_bytes=buffer_bytes),
        facts,
        vitals,
        1_000.0,
        lambda: made[0].inbox_has_room,
    )
    made.append(Talk(session, vitals))
    return made[0]


def serving_talk(*, grace_s: float = 60.0, buffer_bytes: int = 64 * 1024 * 1024) -> Talk:
    """A session that was welcomed."""
    conversation = talk(grace_s=grace_s, buffer_bytes=buffer_bytes)
    conversation.says()
    conversation.is_welcomed()
    return conversation
