"""Any bytes give messages or MalformedFrame, and every message survives the way there."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.codec import (
    MalformedFrame,
    decode_body,
    decode_to_parent,
    decode_to_worker,
    encode,
    encode_body,
    encode_message,
    join_encoded,
)
from shared.failures import Failure
from shared.ids import CommandId, GenerationId, JobId, StoreId
from shared.launch import EngineSettings, LaunchRecord, decode_launch, encode_launch
from shared.messages import (
    Accepted,
    Ack,
    Answer,
    BodyPart,
    Cancel,
    ChoiceResume,
    CloseItem,
    Credit,
    Delta,
    Exit,
    Failed,
    Finish,
    Finished,
    Frame,
    Heartbeat,
    Held,
    Hello,
    Identify,
    Loading,
    OpenItem,
    ParentHeartbeat,
    Preempt,
    Progress,
    Ready,
    Reasoning,
    Refused,
    Replay,
    RunJob,
    Seal,
    Stopped,
    Text,
    ToolArguments,
    ToParent,
    ToWorker,
    Welcome,
)
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams

GENERATION = GenerationId("gen_1")
JOB = JobId("job_1")
STORE = StoreId("store")
COMMAND = CommandId(7)
CREDIT = Credit(3, 2**62, 7)
FAILURE = Failure("engine_error", "Übles", retryable=True, param="messages")
CHAT = ChatRequest(
    messages=(ChatMessage("user", "grüße 🎉", name="Ann"),),
    sampling=SamplingParams(seed=2**64 - 1, temperature=0.5, top_k=3),
    max_tokens=5,
    stop=("\n",),
)
PARTS = (
    OpenItem(0, "tool_call", "f"),
    Text("a"),
    Reasoning("b"),
    ToolArguments("{"),
    CloseItem(0),
    Finish("stop", "\n"),
)
EVENTS = (
    Accepted(COMMAND, JOB, 1, 10, 0, "ab", 5),
    Refused(COMMAND, JOB, 1, "later", FAILURE),
    Progress(JOB, 1, 5, 10),
    Delta(JOB, 1, 0, 4, (1, 2), PARTS, (-0.5, -1.0)),
    Finished(JOB, 1, 5, 0),
    Stopped(JOB, 1, "cancelled", 2, 0),
    Failed(JOB, 1, FAILURE, 2, 0),
    Answer(COMMAND, "sealed", b"\x00\xff"),
)
SAID_BY_WORKER: list[ToParent] = [
    Hello(1, GENERATION, 42, 99, 3, 9, (Held(JOB, 2),), 4, STORE),
    Loading(GENERATION, "weights", 1, 2),
    Ready(GENERATION, 8, 4096, "fp", CREDIT, 1.5, "openblas"),
    Heartbeat(GENERATION, 9, 7, 2, 1, 100, 0.25, "paused", 12345),
    Frame(GENERATION, 1, CREDIT, EVENTS),
]
SAID_BY_PARENT: list[ToWorker] = [
    Welcome(1, STORE, GENERATION, 3),
    Identify(1),
    ParentHeartbeat(1, 3, 4, 7),
    Ack(1, 3),
    Replay(1, 4),
    RunJob(1, STORE, COMMAND, JOB, 1, 1_700_000_000, CHAT),
    RunJob(
        1,
        STORE,
        COMMAND,
        JOB,
        2,
        1_700_000_000,
        None,
        (ChoiceResume(0, (1, 2, 3), items=1, emitted_chars=4, emitted_digest="d"),),
        "digest",
        "fp",
        "sha",
        2,
    ),
    BodyPart(1, COMMAND, 0, 2, b"xyz"),
    Cancel(1, COMMAND, JOB, 1),
    Preempt(1, COMMAND, JOB, 1),
    Seal(1, COMMAND),
    Exit(1, GENERATION, "drain"),
]


def _ids(messages: list[ToParent] | list[ToWorker]) -> list[str]:
    return [f"{number}-{type(message).__name__}" for number, message in enumerate(messages)]


@pytest.mark.parametrize("message", SAID_BY_WORKER, ids=_ids(SAID_BY_WORKER))
def test_what_a_worker_says_arrives_as_it_was(message: ToParent) -> None:
    assert decode_to_parent(encode([message])) == [message]


@pytest.mark.parametrize("message", SAID_BY_PARENT, ids=_ids(SAID_BY_PARENT))
def test_what_a_parent_says_arrives_as_it_was(message: ToWorker) -> None:
    assert decode_to_worker(encode([message])) == [message]


def test_every_message_of_either_union_has_a_round_trip_here() -> None:
    assert {type(m) for m in SAID_BY_WORKER} == set(ToParent.__args__)
    assert {type(m) for m in SAID_BY_PARENT} == set(ToWorker.__args__)


def test_one_part_holds_many_messages_in_order() -> None:
    assert decode_to_worker(encode(SAID_BY_PARENT)) == SAID_BY_PARENT


@pytest.mark.parametrize("count", [0, 1, 15, 16, 200, 65_535, 65_536])
def test_joining_encoded_messages_equals_encoding_them_together(count: int) -> None:
    message = Ack(1, 3)
    assert join_encoded([encode_message(message)] * count) == encode([message] * count)


def test_a_message_of_the_other_direction_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        decode_to_parent(encode([Ack(1, 3)]))


def test_a_message_with_too_few_fields_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="length"):
        decode_to_worker(msgspec.msgpack.encode([["ack", 1]]))


def test_fields_appended_by_a_newer_version_are_ignored() -> None:
    assert decode_to_worker(msgspec.msgpack.encode([["ack", 1, 3, "new"]])) == [Ack(1, 3)]


def test_a_message_without_its_list_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        decode_to_worker(encode_message(Ack(1, 3)))


def test_deep_nesting_is_malformed_and_not_a_crash() -> None:
    with pytest.raises(MalformedFrame):
        decode_to_worker(b"\x91" * 100_000)


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_malformed(data: bytes) -> None:
    for decode in (decode_to_parent, decode_to_worker):
        try:
            messages = decode(data)
        except MalformedFrame:
            continue
        assert isinstance(messages, list)


@given(st.sampled_from([encode(SAID_BY_WORKER), encode(SAID_BY_PARENT)]), st.data())
def test_any_damaged_message_is_messages_or_malformed(whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for decode in (decode_to_parent, decode_to_worker):
        try:
            decode(bytes(damaged[:cut]))
        except MalformedFrame:
            continue


def test_a_body_arrives_as_it_was() -> None:
    assert decode_body(encode_body(CHAT)) == CHAT


@given(st.binary(max_size=100))
def test_any_bytes_are_a_body_or_malformed(data: bytes) -> None:
    try:
        decode_body(data)
    except MalformedFrame:
        return


def test_a_launch_record_arrives_as_it_was() -> None:
    record = LaunchRecord(
        generation=GENERATION,
        store=STORE,
        epoch=2,
        model="tiny",
        endpoint="ipc:///x",
        cache_dir="/c",
        engine=EngineSettings(model_path="/m"),
    )
    data = encode_launch(record)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert decode_launch(data[4:]) == record
