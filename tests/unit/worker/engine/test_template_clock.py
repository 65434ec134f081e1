"""A template's date is that of the job."""

from worker.engine.template_clock import clock, with_fixed_clock

CREATED = 1_700_000_000


def test_a_template_without_a_date_stays_as_it_is() -> None:
    assert with_fixed_clock("{{ messages }}") == "{{ messages }}"


def test_the_parts_of_a_date_are_those_of_utc() -> None:
    parts = clock(CREATED)
    assert [parts[code] for code in ("%Y", "%m", "%d", "%H", "%B", "%-d")] == [
        "2023", "11", "14", "22", "November", "14",
    ]  # fmt: skip
    assert parts["%%"] == "%"
