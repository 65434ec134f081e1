"""A job's events as frames: one number each, the same number for ever, cut where a reader was."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InternalError, JobNotFound, StreamInterrupted
from app.domain.events import Ended, FollowedEvent, Output, Started
from app.domain.job import Ending, JobState, Usage
from app.domain.numbering import shown
from app.http.native.events import JobEvents
from shared.failures import Failure
from shared.ids import JobId
from shared.messages import CloseItem, Finish, OpenItem, Part, Reasoning, Text, ToolArguments
from tests.integration.http.job_doubles import CREATED_AT

JOB = JobId("job_1")


def ended(seq: int, failure: Failure | None = None) -> Ended:
    ending = Ending(
        job=JOB,
        attempt=1,
        state=JobState.FAILED if failure else JobState.COMPLETED,
        finish_reason=None if failure else "stop",
        failure=failure,
        usage=Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=4, reasoning_tokens=1),
        finalized_at=CREATED_AT,
    )
    return Ended(seq, ending)


def a_whole_job() -> list[FollowedEvent]:
    return [
        Started(1, 7, 3),
        Output(2, 0, (OpenItem(0, "reasoning"), Reasoning("hm"), CloseItem(0)), 1),
        Output(5, 0, (OpenItem(1, "message"), Text("Par"), Text("is.")), 2),
        Output(8, 0, (CloseItem(1), OpenItem(2, "tool_call", "f"), ToolArguments("{}")), 1),
        Output(11, 0, (CloseItem(2), Finish("stop")), 0),
        ended(12),
    ]


def read(frames: bytes) -> list[dict[str, Any]]:
    """The data of every frame, whose three lines must agree."""
    events: list[dict[str, Any]] = []
    for frame in frames.decode().split("\n\n")[:-1]:
        number, kind, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert number == f"id: {event['seq']}"
        assert kind == f"event: {event['type']}"
        events.append(event)
    return events


def shown_after(starting_after: int, events: list[FollowedEvent]) -> list[dict[str, Any]]:
    dialect = JobEvents(JOB, starting_after)
    return read(dialect.opening() + dialect.render(events))


def test_a_job_is_told_from_created_to_ended_without_gaps() -> None:
    events = shown_after(-1, a_whole_job())
    assert [event["seq"] for event in events] == list(range(13))
    assert [event["type"] for event in events] == [
        "created",
        "started",
        "item_open",
        "reasoning",
        "item_close",
        "item_open",
        "text",
        "text",
        "item_close",
        "item_open",
        "tool_arguments",
        "item_close",
        "ended",
    ]


def test_what_each_event_says() -> None:
    by_number = {event["seq"]: event for event in shown_after(-1, a_whole_job())}
    assert by_number[0] == {"type": "created", "seq": 0, "job": JOB}
    assert by_number[1] == {"type": "started", "seq": 1, "prompt_tokens": 7, "cached_tokens": 3}
    assert by_number[3] == {"type": "reasoning", "seq": 3, "choice": 0, "text": "hm"}
    assert by_number[6] == {"type": "text", "seq": 6, "choice": 0, "text": "Par"}
    assert by_number[8] == {"type": "item_close", "seq": 8, "choice": 0, "item": 1}
    assert by_number[9] == {
        "type": "item_open",
        "seq": 9,
        "choice": 0,
        "item": 2,
        "kind": "tool_call",
        "name": "f",
    }
    assert by_number[10] == {"type": "tool_arguments", "seq": 10, "choice": 0, "text": "{}"}
    assert by_number[12] == {
        "type": "ended",
        "seq": 12,
        "state": "completed",
        "finish_reason": "stop",
        "usage": {
            "prompt_tokens": 7,
            "cached_tokens": 3,
            "completion_tokens": 4,
            "reasoning_tokens": 1,
            "total_tokens": 11,
        },
        "failure": None,
    }


def test_a_failure_is_told_with_the_ending() -> None:
    failure = Failure("worker_crashed", "It died.", retryable=True, param=None)
    (event,) = shown_after(0, [ended(1, failure)])
    assert event["state"] == "failed"
    assert event["failure"] == {
        "code": "worker_crashed",
        "message": "It died.",
        "retryable": True,
        "param": None,
    }


@pytest.mark.parametrize("starting_after", range(13))
def test_a_reader_gets_exactly_what_is_above_its_number(starting_after: int) -> None:
    whole = shown_after(-1, a_whole_job())
    assert shown_after(starting_after, a_whole_job()) == whole[starting_after + 1 :]


def test_an_output_is_cut_in_its_middle() -> None:
    output = Output(2, 0, tuple(Text(letter) for letter in "abcd"), 4)
    assert [event["text"] for event in shown_after(3, [output])] == ["c", "d"]


def test_what_was_shown_is_not_shown_again() -> None:
    dialect = JobEvents(JOB, 0)
    first = Output(1, 0, (Text("a"), Text("b")), 2)
    again = Output(1, 0, (Text("a"), Text("b"), Text("c")), 3)
    assert [event["text"] for event in read(dialect.render([first]))] == ["a", "b"]
    assert [event["text"] for event in read(dialect.render([again]))] == ["c"]


def test_text_holds_nothing_that_some_reader_takes_for_a_line_end() -> None:
    output = Output(1, 0, (Text("a\nb\r\u2028\u0085c"),), 1)
    frame = JobEvents(JOB, 0).render([output])
    assert len(frame.decode().splitlines()) == 4
    assert read(frame)[0]["text"] == "a\nb\r\u2028\u0085c"


@pytest.mark.parametrize("error", [JobNotFound("It was deleted."), InternalError()])
def test_an_error_is_an_event_without_a_number(error: JobNotFound | InternalError) -> None:
    kind, data, *rest = JobEvents(JOB, 0).failure(error).decode().split("\n")
    assert (kind, rest) == ("event: error", ["", ""])
    assert json.loads(data.removeprefix("data: "))["error"]["code"] == error.code


def test_a_server_that_stops_says_nothing_so_that_its_reader_comes_back() -> None:
    assert JobEvents(JOB, 0).failure(StreamInterrupted()) == b""


PARTS = st.lists(
    st.one_of(
        st.builds(Text, st.text(max_size=3)),
        st.builds(Reasoning, st.text(max_size=3)),
        st.builds(CloseItem, st.integers(0, 3)),
        st.just(Finish("stop")),
    ),
    max_size=4,
)


@given(st.lists(PARTS, max_size=6), st.integers(-1, 30))
def test_any_reader_sees_the_end_of_what_the_first_one_saw(
    outputs: list[list[Part]], starting_after: int
) -> None:
    events: list[FollowedEvent] = []
    seq = 1
    for parts in outputs:
        events.append(Output(seq, 0, tuple(parts), 1))
        seq += sum(shown(part) for part in parts)
    whole = shown_after(-1, events)
    assert [event["seq"] for event in whole] == list(range(seq))
    assert shown_after(starting_after, events) == whole[starting_after + 1 :]
