"""When a delivery is tried again, for how long, and what its endpoint waits for."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.webhook_retrying import (
    FIRST_S,
    JITTER,
    LONGEST_S,
    Row,
    Verdict,
    asked_for_s,
    begun,
    tried,
    verdict,
    wait_s,
)
from app.domain.webhooks import TRIES_KEPT, Delivery, DeliveryState, Try

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GIVE_UP_S = 72 * 3600.0


def delivery() -> Delivery:
    return begun("we_1", "evt_1", 1, "job.completed", NOW)


def attempt(status: int | None = 500) -> Try:
    return Try(at=NOW, took_ms=1, status=status)


@pytest.mark.parametrize(
    ("status", "came"),
    [
        (200, Verdict.DELIVERED),
        (204, Verdict.DELIVERED),
        (299, Verdict.DELIVERED),
        (301, Verdict.FAILED),
        (302, Verdict.FAILED),
        (404, Verdict.FAILED),
        (410, Verdict.GONE),
        (429, Verdict.FAILED),
        (500, Verdict.FAILED),
        (None, Verdict.FAILED),
    ],
)
def test_an_answer_means_what_its_status_says(status: int | None, came: Verdict) -> None:
    assert verdict(status) is came


def test_the_wait_doubles_up_to_an_hour_and_is_spread() -> None:
    assert [wait_s(n, 0.5) for n in (1, 2, 3)] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert wait_s(10_000, 0.5) == LONGEST_S
    assert wait_s(1, 0.0) == FIRST_S * (1 - JITTER)
    assert wait_s(1, 1.0) == FIRST_S * (1 + JITTER)


def test_a_delivery_is_tried_for_72_hours_and_at_their_end_then_parked() -> None:
    told, elapsed_s, tries = delivery(), 0.0, 0
    while told.state is DeliveryState.WAITING:
        now = NOW + timedelta(seconds=elapsed_s)
        left_s = GIVE_UP_S - elapsed_s
        told, pause_s = tried(told, attempt(), Verdict.FAILED, now, left_s, 0.5)
        elapsed_s += pause_s
        tries += 1
    assert elapsed_s == pytest.approx(GIVE_UP_S)
    assert told.state is DeliveryState.PARKED
    assert told.ended_at == NOW + timedelta(seconds=GIVE_UP_S)
    assert 70 < tries < 100
    assert (told.tries, len(told.log)) == (tries, TRIES_KEPT)


def test_one_that_nobody_could_try_for_so_long_is_tried_once_more() -> None:
    arrived, _ = tried(delivery(), attempt(200), Verdict.DELIVERED, NOW, -1.0, 0.5)
    assert arrived.state is DeliveryState.DELIVERED
    assert arrived.ended_at == NOW


def test_410_gives_up_no_delivery() -> None:
    told, _ = tried(delivery(), attempt(410), Verdict.GONE, NOW, 0.0, 0.5)
    assert told.state is DeliveryState.WAITING
    assert told.next_at


def test_one_event_that_fails_over_and_over_holds_up_no_other() -> None:
    row = Row()
    assert [row.failure("evt_1", lambda: 0.5) for _ in range(50)] == [0.0] * 50
    assert row.success() == set()


def test_an_endpoint_that_is_down_is_asked_ever_more_rarely_and_then_caught_up_with() -> None:
    row = Row()
    waits = [row.failure(f"evt_{n}", lambda: 0.5) for n in range(4)]
    assert waits == [0.0, FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert row.success() == {"evt_0", "evt_1", "evt_2", "evt_3"}
    assert row.success() == set()


def test_a_receiver_is_left_alone_for_as_long_as_it_asks_for() -> None:
    assert Row().failure("evt_1", lambda: 0.5, 120.0) == 120.0
    told, pause_s = tried(delivery(), attempt(503), Verdict.FAILED, NOW, 1e6, 0.5, 120.0)
    assert pause_s == 120.0
    assert told.next_at == NOW + timedelta(seconds=120)


def test_no_receiver_makes_a_delivery_late_for_its_last_try() -> None:
    _, pause_s = tried(delivery(), attempt(503), Verdict.FAILED, NOW, 30.0, 0.5, 120.0)
    assert pause_s == 30.0


@pytest.mark.parametrize(
    ("said", "asked_s"),
    [
        (None, 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Sun, 01 Mar 2026 12:01:00 GMT", 60.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("9" * 400, LONGEST_S),
        ("Mon, 01 Mar 2100 12:00:00 GMT", LONGEST_S),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("\u0661", 0.0),
    ],
)
def test_how_long_is_asked_for_is_seconds_or_a_date(said: str | None, asked_s: float) -> None:
    assert asked_for_s(said, datetime(2026, 3, 1, 12, tzinfo=UTC)) == asked_s
