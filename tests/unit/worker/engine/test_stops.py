"""Stop strings: the first complete match ends a text, and nothing of it is shown early."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.stops import StopMatch, StopStrings

END = StopStrings(["<|end|>", "STOP"])


@pytest.mark.parametrize(
    ("text", "held"),
    [("hello <|en", 4), ("hello ST", 2), ("hello", 0), ("hello STOP", 0), ("", 0), ("SSTO", 3)],
)
def test_the_longest_trailing_run_that_may_become_a_stop_is_held(text: str, held: int) -> None:
    assert END.held(text) == held


def test_a_match_names_its_beginning() -> None:
    assert END.find("hello STOP it") == StopMatch(6, "STOP")
    assert END.find("hello STO") is None


def test_of_two_stops_in_one_text_the_one_complete_first_wins() -> None:
    assert StopStrings(["b", "abc"]).find("xabc") == StopMatch(2, "b")


def test_of_two_stops_complete_at_once_the_longest_wins() -> None:
    assert StopStrings(["bc", "abc", "c"]).find("xabc") == StopMatch(1, "abc")


def test_a_stop_of_the_template_is_not_named() -> None:
    assert StopStrings(["b"], silent=["a"]).find("xay") == StopMatch(1, None)
    assert StopStrings(["a"], silent=["a"]).find("xay") == StopMatch(1, "a")


def test_no_stops_match_and_hold_nothing() -> None:
    nothing = StopStrings([""])
    assert not nothing
    assert nothing.find("abc") is None
    assert nothing.held("abc") == 0


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    text=st.text("ab", max_size=12),
)
def test_what_is_held_is_the_longest_proper_prefix(stops: list[str], text: str) -> None:
    expected = max(
        (n for n in range(len(text) + 1) for stop in stops if n < len(stop)
         and text.endswith(stop[:n])),
        default=0,
    )  # fmt: skip
    assert StopStrings(stops).held(text) == expected
