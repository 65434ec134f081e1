from typing import Any

import pytest

from app.domain.feed import About, Cursor, Selection
from app.domain.job import JobClass


def about(**fields: Any) -> About:
    """A durable job in the background."""
    given: dict[str, Any] = {
        "tenant": "acme",
        "job_class": "background",
        "durability": "durable",
        **fields,
    }
    return About(**given)


def test_a_cursor_is_written_as_epoch_and_sequence() -> None:
    assert Cursor("abc", 7).written() == "abc:7"


@pytest.mark.parametrize(
    ("selection", "job", "shown"),
    [
        (Selection(), about(), True),
        (Selection(), about(job_class="interactive"), True),
        (Selection(), about(job_class="batch"), False),
        (Selection(classes=(JobClass.BATCH,)), about(job_class="batch"), True),
        (Selection(classes=(JobClass.BATCH,)), about(), False),
        (Selection(), about(durability="attached"), False),
        (Selection(), about(durability="stored"), True),
        (Selection(include_attached=True), about(durability="attached"), True),
        (Selection(tenant="acme"), about(), True),
        (Selection(tenant="other"), about(), False),
        (Selection(tags={"team": "a"}), about(tags={"team": "a", "run": "1"}), True),
        (Selection(tags={"team": "a", "run": "2"}), about(tags={"team": "a", "run": "1"}), False),
        (Selection(tags={"team": "a"}), about(), False),
        (Selection(kinds=("generation",)), about(), False),
    ],
)
def test_a_job_is_shown_to_who_asked_for_such(
    selection: Selection, job: About, shown: bool
) -> None:
    assert selection.shows("job", job) is shown


@pytest.mark.parametrize("kind", ["generation", "drain"])
def test_what_is_no_job_is_the_operators(kind: str) -> None:
    assert Selection().shows(kind, About())
    assert not Selection(tenant="acme").shows(kind, About())
    assert not Selection(tags={"team": "a"}).shows(kind, About())
    assert not Selection(kinds=("job",)).shows(kind, About())


def test_a_damaged_report_is_shown_to_the_operator_alone() -> None:
    assert Selection().shows_unread("job")
    assert not Selection(tenant="acme").shows_unread("job")
    assert not Selection(kinds=("drain",)).shows_unread("job")
