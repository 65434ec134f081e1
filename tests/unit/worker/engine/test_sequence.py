"""Tokens become parts: one item, text behind the hold-back, one finish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messages import CloseItem, Finish, OpenItem, Part, Text
from worker.engine.detokenize import ByteDetokenizer
from worker.engine.sequence import ResumeDiverged, Sequence, text_digest
from worker.engine.stops import StopStrings

EOS = 256
PIECES = {byte: bytes((byte,)) for byte in range(256)} | {EOS: b"<eos>"}


def make_sequence(*stops: str) -> Sequence:
    return Sequence(ByteDetokenizer(PIECES), frozenset({EOS}), StopStrings(stops))


def push_all(sequence: Sequence, text: str) -> list[Part]:
    parts: list[Part] = []
    for byte in text.encode():
        if sequence.finished:
            break
        parts.extend(sequence.push(byte))
    return parts


def test_the_first_text_opens_the_item() -> None:
    sequence = make_sequence()
    assert sequence.push(ord("a")) == (OpenItem(0, "message"), Text("a"))
    assert sequence.push(ord("b")) == (Text("b"),)


def test_an_end_of_sequence_token_counts_and_is_not_shown() -> None:
    sequence = make_sequence()
    sequence.push(ord("a"))
    assert sequence.push(EOS, "stop") == (CloseItem(0), Finish("stop"))
    assert sequence.finished
    assert sequence.tokens == 2
    assert sequence.shown == "a"


def test_an_empty_answer_is_an_empty_item() -> None:
    opened = (OpenItem(0, "message"), CloseItem(0), Finish("stop"))
    assert make_sequence().push(EOS, "stop") == opened


def test_the_last_token_by_length_shows_its_text() -> None:
    sequence = make_sequence()
    parts = sequence.push(ord("a"), "length")
    assert parts == (OpenItem(0, "message"), Text("a"), CloseItem(0), Finish("length"))


def test_a_stop_string_ends_the_text_before_it_and_is_named() -> None:
    sequence = make_sequence("STOP")
    parts = push_all(sequence, "go STOP and more")
    assert sequence.shown == "go "
    assert parts[-1] == Finish("stop", "STOP")
    assert sequence.tokens == len("go STOP")


def test_withheld_tokens_are_released_when_no_stop_can_come_of_them() -> None:
    sequence = make_sequence("STOP")
    assert push_all(sequence, "STO") == []
    assert sequence.push(ord("x")) == (OpenItem(0, "message"), Text("STOx"))


def test_withheld_text_is_released_at_the_end() -> None:
    sequence = make_sequence("STOP")
    push_all(sequence, "ST")
    parts = sequence.push(ord("O"), "length")
    assert Text("STO") in parts
    assert parts[-1] == Finish("length")


def test_a_stop_completed_by_the_last_token_beats_length() -> None:
    sequence = make_sequence("ab")
    sequence.push(ord("a"))
    assert sequence.push(ord("b"), "length")[-1] == Finish("stop", "ab")


def test_a_stop_that_begins_with_the_first_token_shows_nothing() -> None:
    sequence = make_sequence("abc")
    push_all(sequence, "abc")
    assert sequence.shown == ""


def test_closing_releases_what_is_held() -> None:
    sequence = make_sequence("STOP")
    push_all(sequence, "xST")
    assert sequence.close("cancelled") == (Text("ST"), CloseItem(0), Finish("cancelled"))
    assert sequence.close("cancelled") == ()


def test_a_finished_sequence_takes_no_tokens() -> None:
    sequence = make_sequence()
    sequence.push(EOS, "stop")
    with pytest.raises(RuntimeError, match="finished"):
        sequence.push(ord("a"))


def test_a_truncated_character_is_shown_as_a_replacement_at_the_end() -> None:
    sequence = make_sequence()
    sequence.push("é".encode()[0])
    assert Text("\ufffd") in sequence.push(EOS, "stop")


@given(
    text=st.text("abé日<", max_size=30),
    stops=st.lists(st.text("abé<", min_size=1, max_size=4), max_size=3),
)
def test_a_text_ends_where_a_scan_of_the_whole_would_end_it(text: str, stops: list[str]) -> None:
    sequence = make_sequence(*stops)
    push_all(sequence, text)
    sequence.close("length")
    assert sequence.shown == _shown(text, stops)


def _shown(text: str, stops: list[str]) -> str:
    for end in range(len(text) + 1):
        matched = [stop for stop in stops if text[:end].endswith(stop)]
        if matched:
            return text[: end - max(map(len, matched))]
    return text


@given(
    text=st.text("abé日<", max_size=20),
    stops=st.lists(st.text("abé<", min_size=1, max_size=4), max_size=2),
    cut=st.integers(0, 60),
)
def test_a_resumed_sequence_goes_on_as_an_undisturbed_one(
    text: str, stops: list[str], cut: int
) -> None:
    whole, first, second = (make_sequence(*stops) for _ in range(3))
    tokens = list(text.encode())
    push_all(whole, text)
    for token in tokens[:cut]:
        if not first.finished:
            first.push(token)
    unshown = second.resume(
        tokens[:cut], items=first.items, chars=len(first.shown), digest=text_digest(first.shown)
    )
    assert [part for part in unshown if isinstance(part, OpenItem | Text)] == []
    for token in tokens[cut:]:
        if not second.finished:
            second.push(token)
    assert (second.shown, second.finish, second.tokens) == (whole.shown, whole.finish, whole.tokens)


def test_what_was_not_shown_before_is_shown_after_a_resume() -> None:
    sequence = make_sequence()
    unshown = sequence.resume(b"abcd", items=1, chars=1, digest=text_digest("a"))
    assert "".join(part.text for part in unshown if isinstance(part, Text)) == "bcd"
    assert OpenItem(0, "message") not in unshown


def test_a_resume_from_nothing_shown_shows_all() -> None:
    unshown = make_sequence().resume(b"ab", items=0, chars=0, digest="")
    assert unshown == (OpenItem(0, "message"), Text("a"), Text("b"))


def test_a_resume_that_meets_an_end_is_finished() -> None:
    sequence = make_sequence("b")
    unshown = sequence.resume(b"ab", items=1, chars=1, digest=text_digest("a"))
    assert unshown == (CloseItem(0), Finish("stop", "b"))
    assert sequence.finished


@pytest.mark.parametrize(("items", "chars", "shown"), [(1, 1, "x"), (1, 5, "abcde"), (2, 2, "ab")])
def test_a_resume_that_contradicts_what_was_shown_is_refused(
    items: int, chars: int, shown: str
) -> None:
    with pytest.raises(ResumeDiverged):
        make_sequence().resume(b"ab", items=items, chars=chars, digest=text_digest(shown))
