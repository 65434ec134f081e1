"""Deliveries over real sockets: whatever the receiver does, each event arrives under one id, with
the same bytes."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
import trustme
from standardwebhooks.webhooks import Webhook

from app.domain import webhook_retrying
from app.domain.errors import JobServerError
from app.domain.feed import Report
from app.domain.webhooks import Change, EndpointState, Event, event_of
from app.services.webhooks import bodies as bodies_module
from app.services.webhooks import sender as sender_module
from app.services.webhooks import senders as senders_module
from app.storage.consumers import load_consumer, park_consumer
from app.storage.deliveries import delete_parked
from app.storage.report_retention import delete_reports
from app.storage.verify import verify
from tests.integration.reports.test_restoring import copied, over_it
from tests.integration.webhooks.receiving import Arrival, Receiver, in_turn, receiver
from tests.integration.webhooks.sending import PATIENCE_S, Sending, sending

OPENAI = openai.OpenAI(api_key="none", base_url="http://127.0.0.1")


def unwrapped(arrival: Arrival, secret: str) -> Any:
    """The event, verified as receivers verify it."""
    Webhook(secret).verify(arrival.body, dict(arrival.headers))
    return OPENAI.webhooks.unwrap(arrival.body, dict(arrival.headers), secret=secret)


def assert_same_each_time(hook: Receiver) -> None:
    """Each id came with the same bytes, however often."""
    bodies = {arrival.id: arrival.body for arrival in hook.arrivals}
    assert all(arrival.body == bodies[arrival.id] for arrival in hook.arrivals)


async def test_each_ending_arrives_once_in_order_and_signed(hooks: Sending, hook: Receiver) -> None:
    made = (await hooks.endpoint(hook.url)).endpoint
    jobs = await hooks.end_jobs(3)
    arrivals = await hook.received(3)
    events = [unwrapped(arrival, made.secret) for arrival in arrivals]
    assert [event.data.id for event in events] == jobs
    assert [event.type for event in events] == ["job.cancelled"] * 3
    assert [arrival.id for arrival in arrivals] == [event.id for event in events]
    told = arrivals[0].event["data"]["report"]
    assert (told["subject"], told["report"]["usage"]["completion_tokens"]) == (jobs[0], 0)
    await hooks.stands(made.id, "delivered", "delivered", "delivered")
    assert hook.connections == 1
    assert hooks.senders.counts.delivered == 3


async def test_it_comes_again_with_the_same_bytes_until_it_is_taken(
    tmp_path: Path, hook: Receiver
) -> None:
    hook.behaves = in_turn("error", "hang", "moved", "cut", "nonsense", "ok")
    async with sending(tmp_path / "data", timeout_s=0.1) as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(1)
        arrivals = await hook.received(6)
        (told,) = await hooks.stands(made.id, "delivered")
        assert len({arrival.id for arrival in arrivals}) == 1
        assert {arrival.path for arrival in arrivals} == {"/hook"}
        assert_same_each_time(hook)
        for arrival in arrivals:
            unwrapped(arrival, made.secret)
        assert [attempt.status for attempt in told.log] == [500, None, 302, None, None, 200]
        assert told.tries == 6
        assert told.log[1].error == "no answer within 0.1 s"
        assert await verify(hooks.database.readers) == []


async def test_one_that_is_refused_holds_up_no_other(hooks: Sending, hook: Receiver) -> None:
    made = (await hooks.endpoint(hook.url)).endpoint
    jobs = [f"job_{number:032x}" for number in range(1, 6)]
    hook.behaves = lambda arrival: "error" if arrival.event["data"]["id"] == jobs[1] else "ok"
    assert await hooks.end_jobs(5) == jobs
    await hooks.stands(made.id, "delivered", "waiting", "delivered", "delivered", "delivered")
    consumer = await load_consumer(hooks.database.readers, made.consumer)
    assert consumer
    assert consumer.acked == 5
    hook.behaves = lambda _: "ok"
    await hooks.stands(made.id, *["delivered"] * 5)
    assert_same_each_time(hook)


async def test_endpoints_that_hang_delay_no_other(tmp_path: Path) -> None:
    async with (
        sending(tmp_path / "data", timeout_s=60) as hooks,
        receiver(lambda _: "hang") as hanging,
        receiver() as taking,
    ):
        made = [await hooks.endpoint((hanging, taking)[n % 2].url) for n in range(20)]
        jobs = await hooks.end_jobs(10)
        await taking.received(100)
        await hanging.received(10)
        for view in made[1::2]:
            await hooks.stands(view.endpoint.id, *["delivered"] * len(jobs))
        assert len(hanging.arrivals) == 10
        bodies = {(arrival.id, arrival.body) for arrival in (*taking.arrivals, *hanging.arrivals)}
        assert len(bodies) == len(jobs)


async def test_who_answers_410_is_sent_nothing_more_until_it_is_enabled(
    hooks: Sending, hook: Receiver
) -> None:
    hook.behaves = in_turn("gone", "ok")
    made = (await hooks.endpoint(hook.url)).endpoint
    await hooks.end_jobs(2)
    await hooks.stands(made.id, "waiting")
    view = await hooks.endpoints.get(made.id, None)
    assert view.endpoint.state is EndpointState.DISABLED
    assert view.endpoint.reason == sender_module.GONE_REASON
    assert len(hook.arrivals) == 1
    await hooks.endpoints.update(made.id, None, Change(enabled=True))
    await hooks.stands(made.id, "delivered", "delivered")
    assert_same_each_time(hook)


@pytest.mark.parametrize("answer", ["flood", "endless", "accepted"])
async def test_of_an_answer_only_the_status_counts(
    tmp_path: Path, hook: Receiver, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.outbound import posting

    monkeypatch.setattr(posting, "REPLY_S", 0.05)
    hook.behaves = in_turn(answer, "ok")
    async with sending(tmp_path / "data", timeout_s=5) as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(2)
        await hooks.stands(made.id, "delivered", "delivered")
        assert len(hook.arrivals) == 2


async def test_what_is_given_up_is_parked_and_comes_when_it_is_asked_for(
    tmp_path: Path, hook: Receiver
) -> None:
    hook.behaves = lambda _: "error"
    async with sending(tmp_path / "data", give_up_s=0.02) as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(2)
        parked = await hooks.stands(made.id, "parked", "parked")
        assert all(delivery.ended_at and not delivery.next_at for delivery in parked)
        assert (await hooks.endpoints.get(made.id, None)).parked == 2
        assert hooks.senders.counts.parked == 2
        hook.behaves = lambda _: "ok"
        assert await hooks.deliveries.replay_parked(made.id, None) == 2
        await hooks.stands(made.id, "delivered", "delivered")
        assert_same_each_time(hook)
        assert await verify(hooks.database.readers) == []


async def test_after_a_start_it_goes_on_with_the_bytes_that_were_written(
    tmp_path: Path, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.behaves = lambda _: "error"
    async with sending(tmp_path / "data") as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(1)
        await hooks.stands(made.id, "waiting")
    monkeypatch.setattr(bodies_module, "event_of", _otherwise)
    hook.behaves = lambda _: "ok"
    async with sending(tmp_path / "data") as hooks:
        other = (await hooks.endpoint(hook.url, start="earliest")).endpoint
        await hooks.stands(made.id, "delivered")
        await hooks.stands(other.id, "delivered")
        assert len(set(hook.ids())) == 1
        assert_same_each_time(hook)


def _otherwise(report: Report) -> Event:
    """An event as a later version might write it."""
    event = event_of(report)
    return msgspec.structs.replace(event, body=event.body + b" ")


async def test_events_are_sent_again_from_one_on_or_one_alone(
    hooks: Sending, hook: Receiver
) -> None:
    made = (await hooks.endpoint(hook.url)).endpoint
    await hooks.end_jobs(3)
    first, second, third = [one.event for one in await hooks.stands(made.id, *["delivered"] * 3)]
    await hooks.deliveries.replay_from(made.id, None, second)
    await hook.received(5)
    await hooks.stands(made.id, *["delivered"] * 3)
    await hooks.deliveries.replay_event(made.id, None, first)
    await hook.received(6)
    await hooks.stands(made.id, *["delivered"] * 3)
    assert hook.ids() == [first, second, third, second, third, first]
    assert_same_each_time(hook)
    for unknown in ("evt_nothing", "nothing", "evt_x.rx"):
        with pytest.raises(JobServerError) as refused:
            await hooks.deliveries.replay_from(made.id, None, unknown)
        assert refused.value.code == "webhook_event_not_found"


async def test_two_secrets_sign_while_the_old_one_is_kept(hooks: Sending, hook: Receiver) -> None:
    old = (await hooks.endpoint(hook.url)).endpoint
    new = (await hooks.endpoints.rotate(old.id, None, keep_old=True)).endpoint
    assert new.secret != old.secret
    await hooks.end_jobs(1)
    (arrival,) = await hook.received(1)
    assert len(arrival.headers["webhook-signature"].split()) == 2
    for secret in (old.secret, new.secret):
        unwrapped(arrival, secret)
    assert new.old_secret_until
    assert new.secrets(new.old_secret_until) == (new.secret,)
    newest = (await hooks.endpoints.rotate(old.id, None, keep_old=False)).endpoint
    await hooks.end_jobs(1)
    arrival = (await hook.received(2))[1]
    unwrapped(arrival, newest.secret)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        OPENAI.webhooks.unwrap(arrival.body, dict(arrival.headers), secret=new.secret)


async def test_an_endpoint_is_sent_what_it_asked_for(hooks: Sending, hook: Receiver) -> None:
    chosen = (await hooks.endpoint(hook.url, event_types=["job.cancelled"], tenant="a")).endpoint
    drains = (await hooks.endpoint(hook.url, event_types=["drain.completed"])).endpoint
    await hooks.end_jobs(1, tenant="b")
    mine = await hooks.end_jobs(1, tenant="a")
    await hooks.end_a_drain()
    (of_job,) = await hooks.stands(chosen.id, "delivered")
    (of_drain,) = await hooks.stands(drains.id, "delivered")
    subjects = {arrival.id: arrival.event["data"]["id"] for arrival in hook.arrivals}
    assert subjects[of_job.event] == mine[0]
    assert subjects[of_drain.event].startswith("drain_")
    assert len(hook.arrivals) == 2


@pytest.mark.parametrize(
    "wanted",
    [
        {"event_types": ["job.failed"]},
        {"event_types": ["job.completed"], "tenant": "else"},
    ],
    ids=["of another type", "of another tenant"],
)
async def test_what_does_not_concern_an_endpoint_is_not_kept_for_its_sake(
    hooks: Sending, hook: Receiver, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    monkeypatch.setattr(sender_module, "PASS_S", 0.02)
    made = (await hooks.endpoint(hook.url, **wanted)).endpoint
    await hooks.end_jobs(3)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            consumer = await load_consumer(hooks.database.readers, made.consumer)
            if consumer is not None and consumer.acked == 3:
                break
            await hooks.settled()
    assert hook.arrivals == []


async def test_a_receiver_that_says_when_to_come_again_is_left_alone_for_so_long(
    hooks: Sending, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_retrying, "LONGEST_S", 3_600.0)
    hook.behaves = lambda _: "later"
    made = (await hooks.endpoint(hook.url)).endpoint
    await hooks.end_jobs(2)
    (told,) = await hooks.stands(made.id, "waiting")
    assert told.next_at is not None
    assert (told.next_at - told.log[0].at).total_seconds() >= 1_000
    assert len(hook.arrivals) == 1, "the other event waits with it"


@pytest.fixture
def authorities() -> Iterator[Callable[[], None]]:
    """Reads anew whom certificates are taken from, which a server does once."""
    yield senders_module._posting.cache_clear
    senders_module._posting.cache_clear()


async def test_a_receiver_over_tls_is_known_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authorities: Callable[[], None]
) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)  # pyright: ignore[reportUnknownMemberType] - its own
    async with receiver(tls=tls) as hook, sending(tmp_path / "unknown") as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(1)
        (told,) = await hooks.stands(made.id, "waiting")
        assert "CERTIFICATE_VERIFY_FAILED" in str(told.log[0].error)
        assert hook.arrivals == []
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    authorities()
    async with receiver(tls=tls) as hook, sending(tmp_path / "known") as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(1)
        await hooks.stands(made.id, "delivered")
        unwrapped(hook.arrivals[0], made.secret)


async def test_no_further_event_is_begun_while_too_many_wait(
    hooks: Sending, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "ASIDE_MAX", 2)
    hook.behaves = lambda _: "error"
    made = (await hooks.endpoint(hook.url)).endpoint
    await hooks.end_jobs(1)
    await hooks.stands(made.id, "waiting")
    await hooks.end_jobs(1)
    await hooks.stands(made.id, "waiting", "waiting")
    await hooks.end_jobs(2)
    count = len(hook.arrivals)
    await hook.received(count + 4)
    assert len(set(hook.ids())) == 2
    hook.behaves = lambda _: "ok"
    await hooks.stands(made.id, *["delivered"] * 4)


async def test_one_whose_place_is_not_kept_is_disabled_and_begins_with_what_is(
    hooks: Sending, hook: Receiver
) -> None:
    made = (await hooks.endpoint(hook.url)).endpoint
    await hooks.end_jobs(2)
    await hooks.stands(made.id, "delivered", "delivered")
    consumer = await load_consumer(hooks.database.readers, made.consumer)
    assert consumer
    await hooks.write(park_consumer(consumer, "the feed was full"))
    await hooks.write(delete_reports(1))
    jobs = await hooks.end_jobs(1)
    async with asyncio.timeout(10):
        while (view := await hooks.endpoints.get(made.id, None)).endpoint.reason is None:
            await hooks.settled()
    assert "the feed was full" in view.endpoint.reason
    await hooks.endpoints.update(made.id, None, Change(enabled=True))
    await hook.received(5)
    await hooks.stands(made.id, "delivered", "delivered")
    assert hook.arrivals[-1].event["data"]["id"] == jobs[0]
    assert_same_each_time(hook)


async def test_what_was_set_aside_comes_once_when_its_place_begins_anew(
    hooks: Sending, hook: Receiver
) -> None:
    hook.behaves = lambda _: "error"
    made = (await hooks.endpoint(hook.url)).endpoint
    await hooks.end_jobs(2)
    await hooks.stands(made.id, "waiting", "waiting")
    await hooks.endpoints.update(made.id, None, Change(enabled=False))
    consumer = await load_consumer(hooks.database.readers, made.consumer)
    assert consumer
    await hooks.write(park_consumer(consumer, "nobody enabled it"))
    before = len(hook.arrivals)
    hook.behaves = lambda _: "ok"
    await hooks.endpoints.update(made.id, None, Change(enabled=True))
    await hooks.stands(made.id, "delivered", "delivered")
    assert len(hook.arrivals) == before + 2
    assert_same_each_time(hook)


async def test_what_was_sent_goes_with_its_report_and_what_was_not_stays(
    hooks: Sending, hook: Receiver
) -> None:
    made = (await hooks.endpoint(hook.url)).endpoint
    jobs = [f"job_{number:032x}" for number in range(1, 4)]
    hook.behaves = lambda arrival: "error" if arrival.event["data"]["id"] == jobs[0] else "ok"
    await hooks.end_jobs(3)
    await hooks.stands(made.id, "waiting", "delivered", "delivered")
    await hooks.write(delete_reports(2))
    told = await hooks.told(made.id)
    assert [one.seq for one in told] == [1, 3]
    hook.behaves = lambda _: "ok"
    await hooks.stands(made.id, "delivered", "delivered")
    await hooks.write(delete_parked(told[0].first_at))
    assert [one.seq for one in await hooks.told(made.id)] == [1, 3]
    await hooks.write(delete_reports(3))
    assert await hooks.told(made.id) == []


async def test_a_deleted_endpoint_leaves_nothing(hooks: Sending, hook: Receiver) -> None:
    hook.behaves = lambda _: "hang"
    made = (await hooks.endpoint(hook.url)).endpoint
    await hooks.end_jobs(1)
    await hook.received(1)
    await hooks.endpoints.delete(made.id, None)
    assert await load_consumer(hooks.database.readers, made.consumer) is None
    assert hooks.senders.sending == 0
    with pytest.raises(JobServerError) as refused:
        await hooks.endpoints.get(made.id, None)
    assert refused.value.code == "webhook_endpoint_not_found"


async def test_after_a_backup_was_put_back_what_comes_again_is_the_same(
    tmp_path: Path, hook: Receiver
) -> None:
    directory = tmp_path / "data"
    async with sending(directory) as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(1)
        await hooks.stands(made.id, "delivered")
        await hooks.senders.end(made.id)
        await hooks.end_jobs(1)
        backup = copied(directory)
        hooks.senders.begin(made.id)
        await hooks.end_jobs(1)
        await hooks.stands(made.id, *["delivered"] * 3)
        epoch = hooks.epoch
    over_it(backup, directory)
    async with sending(directory) as hooks:
        assert hooks.epoch != epoch
        hooks.jobs = 2
        await hooks.stands(made.id, "delivered", "delivered")
        await hooks.end_jobs(1)  # the third, which runs again
        await hooks.stands(made.id, *["delivered"] * 3)
        first, second, third = hook.ids()[:3]
        assert hook.ids() == [first, second, third, second, third]
        assert_same_each_time(hook)
        assert await verify(hooks.database.readers) == []
