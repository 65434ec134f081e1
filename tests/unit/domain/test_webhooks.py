"""Reports in the words of OpenAI's webhooks."""

from datetime import UTC, datetime

import msgspec
import openai
import pytest
from openai.types.webhooks import ResponseCompletedWebhookEvent, ResponseIncompleteWebhookEvent

from app.domain.feed import Report
from app.domain.webhooks import EVENT_TYPES, event_id, event_of, report_of, sample
from app.http.webhooks.schema import EventType
from app.services.webhooks.signing import hint, new_secret, signed
from shared.ids import ReportId

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def report(kind: str = "job", outcome: str = "completed", **fields: object) -> Report:
    payload = {"surface": fields.pop("surface", "chat"), "usage": {"completion_tokens": 3}}
    values: dict[str, object] = {
        "id": ReportId("0c6f"),
        "revision": 1,
        "seq": 7,
        "kind": kind,
        "subject": f"{kind}_01a2",
        "outcome": outcome,
        "reason": "stop",
        "complete": True,
        "created_at": NOW,
        "payload": msgspec.json.encode(payload),
        "about": None,
        **fields,
    }
    return Report(**values)  # pyright: ignore[reportArgumentType]


def test_the_types_of_the_door_are_those_that_can_be_sent() -> None:
    assert tuple(EventType.__args__) == EVENT_TYPES


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled"])
def test_a_job_is_told_by_its_outcome(outcome: str) -> None:
    event = event_of(report(outcome=outcome))
    assert event.type == f"job.{outcome}"
    assert event.type in EVENT_TYPES
    body = msgspec.json.decode(event.body)
    assert body["data"]["id"] == "job_01a2"
    assert body["data"]["report"]["report"]["usage"]["completion_tokens"] == 3


def test_a_response_is_told_in_openais_types() -> None:
    secret, moment = new_secret(), datetime.now(UTC)
    client = openai.OpenAI(api_key="none", base_url="http://127.0.0.1", webhook_secret=secret)
    kinds = {"stop": ResponseCompletedWebhookEvent, "length": ResponseIncompleteWebhookEvent}
    for reason, kind in kinds.items():
        event = event_of(report(surface="responses", reason=reason))
        headers = signed(event.id, event.body, [secret], moment)
        told = client.webhooks.unwrap(event.body, headers)
        assert isinstance(told, kind)
        assert (told.data.id, told.created_at) == ("resp_01a2", int(NOW.timestamp()))


def test_an_event_does_not_depend_on_the_place_of_its_report() -> None:
    assert event_of(report(seq=1)).body == event_of(report(seq=2)).body


def test_a_revised_receipt_is_another_event() -> None:
    first, second = report("generation", "crashed"), report("generation", "sealed", revision=2)
    assert (event_id(first), event_id(second)) == ("evt_0c6f", "evt_0c6f.r2")
    assert report_of("evt_0c6f") == ("0c6f", 1)
    assert report_of("evt_0c6f.r2") == ("0c6f", 2)
    assert report_of("job_0c6f") is None


def test_a_damaged_report_is_told_without_its_content() -> None:
    body = msgspec.json.decode(event_of(report(payload=None)).body)
    assert (body["type"], body["data"]["report"]["report"]) == ("job.completed", None)


@pytest.mark.parametrize("type_", EVENT_TYPES)
def test_there_is_a_sample_of_each_type(type_: str) -> None:
    body = msgspec.json.decode(sample("evt_sample_1", type_, NOW))
    assert (body["type"], body["data"]["sample"]) == (type_, True)


def test_a_hint_tells_secrets_apart_and_gives_none_away() -> None:
    secret = new_secret()
    assert len(hint(secret)) == len("whsec_…1234")
    assert secret.rstrip("=").endswith(hint(secret)[-4:])
