from typing import Any

import pytest

from app.domain.job import JobClass
from app.domain.preempting import FIRST_TOKENS, PREEMPTIONS_MAX, Row, choose
from shared.ids import JobId

INTERACTIVE, BACKGROUND, BATCH = JobClass


def row(name: str, job_class: JobClass = BATCH, **fields: Any) -> Row:
    values: dict[str, Any] = {"tokens": 100, "context": 500, **fields}
    return Row(job=JobId(name), job_class=job_class, **values)


def test_the_lowest_class_gives_way_first() -> None:
    rows = [row("a", BACKGROUND, context=10), row("b"), row("c", INTERACTIVE)]
    assert choose(rows, INTERACTIVE) == "b"
    assert choose(rows[:1], INTERACTIVE) == "a"


def test_of_one_class_the_row_with_the_least_to_compute_again_gives_way() -> None:
    rows = [row("a", context=900), row("b", context=200), row("c", context=300)]
    assert choose(rows, INTERACTIVE) == "b"


def test_of_two_alike_the_younger_gives_way() -> None:
    assert choose([row("a"), row("c"), row("b")], INTERACTIVE) == "c"


@pytest.mark.parametrize(
    "spared",
    [
        row("a", tokens=FIRST_TOKENS - 1),
        row("a", preemptions=PREEMPTIONS_MAX),
        row("a", leaving=True),
        row("a", kept=True),
        row("a", INTERACTIVE),
    ],
    ids=["first tokens", "often enough", "asked already", "kept by its class", "same class"],
)
def test_some_rows_are_spared(spared: Row) -> None:
    assert choose([spared], INTERACTIVE) is None
    assert choose([spared, row("b", context=9_999)], INTERACTIVE) == "b"


def test_no_row_gives_way_to_its_own_class_or_a_lower_one() -> None:
    assert choose([row("a", BACKGROUND)], BACKGROUND) is None
    assert choose([row("a", BACKGROUND)], BATCH) is None
    assert choose([], INTERACTIVE) is None
