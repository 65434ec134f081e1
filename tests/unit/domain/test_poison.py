from hypothesis import given
from hypothesis import strategies as st

from app.domain.poison import Limits, Record, Verdict, poisoned

LIMITS = Limits()
PROMPT = 100


def attempt(record: Record, number: int, *, tokens: int = 0, done: int = 0) -> Verdict:
    """One attempt that its worker does not survive."""
    record.begin_attempt()
    record.computed(done, PROMPT)
    record.tokens += tokens
    return record.died(number, LIMITS)


def test_a_poison_fails_at_its_third_death_the_last_one_alone() -> None:
    record = Record()
    assert attempt(record, 1, tokens=5, done=PROMPT) is Verdict.CLEARED
    assert not record.needs_solitude
    assert attempt(record, 2, done=PROMPT + 5) is Verdict.ALONE
    assert record.needs_solitude
    assert attempt(record, 3, done=PROMPT + 5) is Verdict.POISON
    assert "2 times" in poisoned(record.deaths).message


def test_what_gets_on_is_innocent_however_often_its_worker_dies() -> None:
    record = Record()
    for number in range(1, 20):
        assert attempt(record, number, tokens=1, done=PROMPT + number) is Verdict.CLEARED
    assert record == Record(tokens=1, prefill=PROMPT, furthest_prefill=PROMPT)


def test_a_prefill_that_gets_further_is_progress_and_one_that_does_not_is_none() -> None:
    record = Record()
    assert attempt(record, 1, done=40) is Verdict.CLEARED
    assert attempt(record, 2, done=60) is Verdict.CLEARED
    assert attempt(record, 3, done=60) is Verdict.ALONE


def test_replaying_earlier_tokens_is_no_progress() -> None:
    record = Record()
    attempt(record, 1, tokens=50, done=PROMPT)
    assert attempt(record, 2, done=PROMPT + 50) is Verdict.ALONE


def test_a_suspect_that_gets_further_is_none_any_more() -> None:
    record = Record()
    attempt(record, 1)
    assert attempt(record, 2) is Verdict.ALONE
    record.begin_attempt()
    record.tokens += 1
    assert not record.needs_solitude
    assert record.died(3, LIMITS) is Verdict.CLEARED
    assert (record.deaths, record.alone) == (0, False)


def test_an_attempt_that_ends_otherwise_clears_a_suspect_only_if_it_got_further() -> None:
    record = Record(deaths=1, alone=True)
    record.begin_attempt()
    record.attempt_over()
    assert record.needs_solitude
    record.begin_attempt()
    record.computed(1, PROMPT)
    record.attempt_over()
    assert record.deaths == 0
    assert not record.alone


def test_both_limits_count() -> None:
    record, limits = Record(), Limits(alone_after=2, failed_after=2)
    verdicts: list[Verdict] = []
    for number in range(1, 6):
        record.begin_attempt()
        verdicts.append(record.died(number, limits))
    cleared, alone = Verdict.CLEARED, Verdict.ALONE
    assert verdicts == [cleared, cleared, alone, alone, Verdict.POISON]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30))
def test_only_deaths_in_a_row_without_progress_are_ever_held(
    attempts: list[tuple[int, int]],
) -> None:
    record, in_a_row, furthest = Record(), 0, 0
    for number, (tokens, chunks) in enumerate(attempts, 1):
        further = tokens > 0 or chunks > furthest
        verdict = attempt(record, number, tokens=tokens, done=chunks)
        in_a_row = 0 if number == 1 or further else in_a_row + 1
        furthest = max(furthest, chunks)
        expected = (Verdict.CLEARED, Verdict.ALONE, Verdict.POISON)[in_a_row]
        assert verdict is expected
        if verdict is Verdict.POISON:
            break
