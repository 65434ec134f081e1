"""Frames of a chat stream and the whole answer: the same events give the same text."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.errors import StreamInterrupted
from app.domain.events import Ended, FollowedEvent, Output
from app.domain.job import Ending, JobState, Usage
from app.http.openai.completion import CompletionGatherer
from app.http.openai.identity import Identity
from app.http.openai.render import ChatChunks, json_line
from app.http.openai.schema import UsageBlock
from shared.ids import JobId
from shared.messages import Finish, FinishReason, Text

patiently = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

IDENTITY = Identity(id="chatcmpl-1", created=1, model='a "model"\u2028')


def ended(reason: str | None = "stop") -> Ended:
    ending = Ending(
        job=JobId("job_1"),
        attempt=1,
        state=JobState.COMPLETED,
        finish_reason=reason,
        failure=None,
        usage=Usage(prompt_tokens=1, completion_tokens=2, cached_tokens=1, reasoning_tokens=1),
        finalized_at=datetime(2026, 3, 1, tzinfo=UTC),
    )
    return Ended(9, ending)


def outputs(texts: list[str]) -> list[FollowedEvent]:
    return [Output(i, 0, (Text(text),), 1) for i, text in enumerate(texts)]


@patiently
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_line_of_json_is_one_line_for_every_reader_and_says_the_same(text: str) -> None:
    line = json_line({"text": text})
    assert json.loads(line) == {"text": text}
    assert len(line.decode().splitlines()) == 1
    assert len(line.splitlines()) == 1


@patiently
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_a_stream_and_a_whole_answer_have_the_same_text(texts: list[str]) -> None:
    events = [*outputs(texts), ended()]
    dialect = ChatChunks(IDENTITY, include_usage=False)
    stream = (dialect.opening() + dialect.render(events)).decode()
    *payloads, done = [line[6:] for line in stream.splitlines() if line]
    deltas = [json.loads(payload)["choices"][0]["delta"] for payload in payloads]
    gatherer = CompletionGatherer(IDENTITY)
    gatherer.add(events)
    whole = json.loads(gatherer.body())["choices"][0]["message"]["content"]
    assert done == "[DONE]"
    assert "".join(delta.get("content", "") for delta in deltas) == whole == "".join(texts)


def test_the_whole_answer_has_every_key_that_clients_need() -> None:
    gatherer = CompletionGatherer(IDENTITY)
    gatherer.add([*outputs(["Hi"]), ended()])
    assert json.loads(gatherer.body()) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": 'a "model"\u2028',
        "system_fingerprint": None,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "refusal": None},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "total_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }


@pytest.mark.parametrize(
    ("part", "job", "shown"),
    [
        ("stop", None, "stop"),
        ("length", "stop", "length"),
        (None, "length", "length"),
        (None, None, "stop"),
    ],
)
def test_the_reason_is_the_choices_own_or_else_the_jobs(
    part: FinishReason | None, job: str | None, shown: str
) -> None:
    finish = [Output(1, 0, (Finish(part),), 0)] if part else []
    dialect = ChatChunks(IDENTITY, include_usage=False)
    stream = dialect.render([*finish, ended(job)])
    gatherer = CompletionGatherer(IDENTITY)
    gatherer.add([*finish, ended(job)])
    assert f'"finish_reason":"{shown}"'.encode() in stream
    assert f'"finish_reason":"{shown}"'.encode() in gatherer.body()


def test_an_error_in_band_ends_with_done() -> None:
    stream = ChatChunks(IDENTITY, include_usage=True).failure(StreamInterrupted("Cut.\u2028"))
    error, done = stream.decode().split("\n\n")[:2]
    assert json.loads(error[6:])["error"]["message"] == "Cut.\u2028"
    assert done == "data: [DONE]"


def test_the_usage_chunk_is_one_that_the_schema_reads() -> None:
    dialect = ChatChunks(IDENTITY, include_usage=True)
    frames = dialect.render([ended()]).decode().split("\n\n")
    usage = json.loads(frames[1][6:])["usage"]
    assert msgspec.convert(usage, UsageBlock).total_tokens == 3
