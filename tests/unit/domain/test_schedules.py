"""When schedules fire, and what becomes of dues that were missed."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.cadence import NoSuchCron, cadence_of
from app.domain.schedules import LATE_S, CatchUp, Fire, Skip, Timing, Wait, plan

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
EXPRESSIONS = ("* * * * *", "*/7 * * * *", "30 2 * * *", "0 * * * *", "15 4 1 * MON", "0 0 29 2 *")

moments = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
timings = st.one_of(
    st.sampled_from(EXPRESSIONS).map(lambda cron: Timing(anchor=NOON, cron=cron)),
    st.integers(1_000, 10**9).map(lambda ms: Timing(anchor=NOON, every_s=ms / 1_000)),
)
zones = st.sampled_from(
    [UTC, BERLIN, ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")]
)


def cron(expression: str, *, zone: ZoneInfo = BERLIN) -> list[str]:
    """What comes true around both changes of the clocks, in UTC."""
    cadence = cadence_of(Timing(anchor=NOON, cron=expression), zone)
    found: list[str] = []
    for day in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
        due = cadence.after(day - timedelta(microseconds=1))
        while due < day + 3 * HOUR:
            found.append(due.strftime("%d %H:%M"))
            due = cadence.after(due)
    return found


def test_at_a_set_time_that_is_left_out_it_fires_right_behind_the_gap() -> None:
    # In Berlin 02:30 is left out on 29 March, and comes at 00:30 and 01:30 UTC on 25 October.
    assert cron("30 2 * * *") == ["29 01:00", "25 00:30"]


def test_what_fires_every_hour_goes_on_by_elapsed_time() -> None:
    assert cron("30 * * * *") == [f"{day} 0{hour}:30" for day in (29, 25) for hour in range(3)]


def test_an_interval_knows_no_change_of_the_clocks() -> None:
    cadence = cadence_of(Timing(anchor=NOON, every_s=86_400.0), BERLIN)
    assert cadence.after(datetime(2026, 3, 29, 12, tzinfo=UTC)).hour == 12
    assert cadence.after(NOON - 5 * HOUR) == NOON + 24 * HOUR


@pytest.mark.parametrize("expression", ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 31 2 *"])
def test_what_is_no_cron_expression_or_never_comes_true_is_refused(expression: str) -> None:
    with pytest.raises(NoSuchCron):
        cadence_of(Timing(anchor=NOON, cron=expression), UTC)


@given(timings, zones, moments)
def test_a_due_is_the_latest_at_itself_and_the_next_before_itself(
    timing: Timing, zone: ZoneInfo, moment: datetime
) -> None:
    cadence = cadence_of(timing, zone)
    due = cadence.after(max(moment, NOON))
    assert due > max(moment, NOON)
    assert cadence.latest(due) == due
    assert cadence.after(due) > due


@given(timings, moments, moments, st.sampled_from(CatchUp))
def test_dues_only_go_forward_and_what_fires_has_come(
    timing: Timing, begun: datetime, now: datetime, catch_up: CatchUp
) -> None:
    cadence = cadence_of(timing, UTC)
    next_due = cadence.after(max(begun, NOON))
    planned = plan(next_due, now, cadence, catch_up)
    match planned:
        case Wait(due):
            assert due == next_due > now
        case Fire(due, following):
            assert next_due <= due <= now < following
        case Skip(following):
            assert catch_up is CatchUp.NONE
            assert next_due <= now < following


def test_of_many_that_were_missed_one_fires_or_none() -> None:
    hourly = cadence_of(Timing(anchor=NOON, cron="0 * * * *"), UTC)
    now = NOON + timedelta(hours=5, minutes=30)
    missed = plan(NOON + HOUR, now, hourly, CatchUp.ONE)
    assert missed == Fire(NOON + 5 * HOUR, NOON + 6 * HOUR)
    assert plan(NOON + HOUR, now, hourly, CatchUp.NONE) == Skip(NOON + 6 * HOUR)


@pytest.mark.parametrize("late_s", [0.0, 1.0, LATE_S])
def test_one_that_is_a_moment_late_is_not_missed(late_s: float) -> None:
    hourly = cadence_of(Timing(anchor=NOON, cron="0 * * * *"), UTC)
    now = NOON + HOUR + timedelta(seconds=late_s)
    assert plan(NOON + HOUR, now, hourly, CatchUp.NONE) == Fire(NOON + HOUR, NOON + 2 * HOUR)
