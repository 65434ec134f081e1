"""Chat requests with an idempotency key: stored, and durable once their server is gone."""

import json
import signal
from typing import Any

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import Load, scripted
from tests.durable.place import Place, assert_counted_once
from tests.e2e.calls import error_of
from tests.waiting import wait_until

KEY = "the-one-key"
pytestmark = pytest.mark.timeout(120)


class KeyedStream:
    """A stream that was asked for with a key, and can be left."""

    def __init__(self, place: Place, load: Load) -> None:
        (asked,) = load.asked
        body = place.server.body(asked.content, seed=asked.seed, stream=True)
        client = place.server.client
        url = f"{place.server.base}/v1/chat/completions"
        self._context = client.stream("POST", url, json=body, headers={"Idempotency-Key": KEY})
        self.answer = self._context.__enter__()
        self._lines = self.answer.iter_lines()
        self.text = ""

    def read(self, chars: int | None = None) -> list[dict[str, Any]]:
        """Events until so much text has come, or until the end."""
        events: list[dict[str, Any]] = []
        for line in self._lines:
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                choices = events[-1].get("choices", [])
                self.text += "".join(c["delta"].get("content") or "" for c in choices)
            if chars is not None and len(self.text) >= chars:
                break
        return events

    def leave(self) -> None:
        self._context.__exit__(None, None, None)


def the_job(place: Place) -> str:
    (row,) = place.store.jobs()
    return row["id"]


def assert_shown_again(place: Place, load: Load) -> None:
    """The same request with the same key is shown the whole answer of the same job."""
    again = KeyedStream(place, load)
    again.read()
    again.leave()
    assert again.answer.headers["idempotent-replayed"] == "true"
    assert again.text == load.said[0].text
    job = the_job(place)
    assert place.ended(job)["state"] == "completed"
    assert place.tokens(job) == load.said[0].tokens
    assert_counted_once(place, [job])


def test_a_keyed_request_outlives_its_parent_and_is_shown_again_from_its_start(
    new_place: NewPlace,
) -> None:
    place, load = new_place({"step_s": 0.01}), scripted("[[tokens=100]]")
    place.start()
    stream = KeyedStream(place, load)
    stream.read(chars=20)
    assert place.store.job(the_job(place))["durability"] == "stored"
    place.restart()
    assert place.store.job(the_job(place))["durability"] == "durable"
    assert_shown_again(place, load)
    assert place.outcomes(the_job(place)) == ["finished"]


def test_a_keyed_request_is_checkpointed_when_the_server_stops(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.01}), scripted("[[tokens=200]]")
    place.start()
    stream = KeyedStream(place, load)
    stream.read(chars=20)
    place.server.tell(signal.SIGTERM)
    error = error_of(stream.read())
    stream.leave()
    assert error is not None
    assert error["code"] == "stream_interrupted"
    assert place.server.ended() == 0
    place.start()
    assert_shown_again(place, load)
    assert place.outcomes(the_job(place)) == ["preempted", "finished"]


def test_a_keyed_request_whose_client_leaves_is_cancelled_and_what_it_said_is_kept(
    new_place: NewPlace,
) -> None:
    place, load = new_place({"step_s": 0.01}), scripted("[[tokens=10000]]")
    place.start()
    stream = KeyedStream(place, load)
    stream.read(chars=20)
    stream.leave()
    row = place.ended(the_job(place))
    assert (row["state"], row["stop_reason"]) == ("cancelled", "cancel")
    assert load.said[0].text.startswith(place.job(row["id"])["output"][0]["items"][0]["text"])
    wait_until(lambda: len(place.tokens(row["id"])) == row["completion_tokens"] > 0)
    assert_counted_once(place, [row["id"]])
