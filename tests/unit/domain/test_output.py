import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.numbering import numbers
from app.domain.output import JobOutput, OutOfOrder
from app.domain.retry import BACKOFF_MAX_S, backoff_s
from shared.messages import CloseItem, Finish, OpenItem, Part, Text


def say(output: JobOutput, index: int, *texts: str) -> bool:
    parts: list[Part] = [Text(text) for text in texts]
    if index == 0:
        parts.insert(0, OpenItem(0, "message"))
    return output.apply(0, index, range(index, index + len(texts)), parts)


def test_deltas_add_up_to_text_tokens_and_a_resume_state() -> None:
    output = JobOutput()
    assert say(output, 0, "Hel", "lo")
    assert say(output, 2, " you")
    (resume,) = output.resume()
    assert resume.tokens == (0, 1, 2)
    assert resume.items == 1
    assert resume.emitted_chars == len("Hello you")
    assert resume.emitted_digest == hashlib.sha256(b"Hello you").hexdigest()
    assert output.view()[0].items[0].text == "Hello you"


def test_a_repeated_delta_changes_nothing() -> None:
    output = JobOutput()
    say(output, 0, "a")
    say(output, 1, "b")
    assert not say(output, 0, "a")
    assert output.view()[0].items[0].text == "ab"


def test_a_delta_whose_predecessor_is_missing_is_refused() -> None:
    output = JobOutput()
    with pytest.raises(OutOfOrder):
        say(output, 1, "b")


def test_tokens_known_by_number_only_are_counted_and_not_resumed_from() -> None:
    output = JobOutput()
    output.skip({0: 5})
    assert output.completion_tokens == 5
    assert output.apply(0, 5, [9], [])
    assert output.completion_tokens == 6


def test_a_finish_is_remembered_and_closes_the_item() -> None:
    output = JobOutput()
    say(output, 0, "a")
    output.apply(0, 1, [], [CloseItem(0), Finish("stop")])
    assert output.finish_reason == "stop"
    assert output.view()[0].items[0].closed
    assert output.resume()[0].finished


def test_nothing_computed_is_nothing_to_resume() -> None:
    assert JobOutput().resume() == ()


def test_a_choices_finish_takes_no_number() -> None:
    assert numbers((OpenItem(0, "message"), Text("a"), CloseItem(0), Finish("stop"))) == 3


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_back_off_doubles_to_a_minute_and_jitter_takes_at_most_half(n: int, draw: float) -> None:
    full = min(2.0 ** (n - 1), BACKOFF_MAX_S)
    assert full / 2 <= backoff_s(n, draw) <= full
