"""Webhooks while the server is killed: under the same id, with the same bytes, none is lost."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import openai
import pytest
from standardwebhooks.webhooks import Webhook
from typing_extensions import override

from tests.durable.conftest import NewPlace
from tests.durable.hooked import HOOKED, SOON, TYPES
from tests.durable.place import Place
from tests.waiting import wait_until

ANSWERS = {"error": 500, "moved": 302, "gone": 410, "ok": 200}


class Hook(BaseHTTPRequestHandler):
    """Answers in turn, and takes everything once there is nothing left to do."""

    protocol_version = "HTTP/1.1"
    timeout = 20
    script: ClassVar[list[str]] = []
    came: ClassVar[list[tuple[dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        """One try."""
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.came.append((headers, body))
        deed = self.script.pop(0) if self.script else "ok"
        if deed == "hang":
            self.rfile.read(1)  # ends with the connection
            self.close_connection = True
            return
        self.send_response(ANSWERS[deed])
        self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    @override
    def log_message(self, format: str, *_args: Any) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    """Where the receiver listens."""
    Hook.script, Hook.came = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def registered(place: Place, port: int) -> dict[str, Any]:
    body = {"name": "h", "url": f"http://127.0.0.1:{port}/hook", "event_types": TYPES[:3]}
    answer = place.post("/v1/webhook_endpoints", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def came(count: int) -> list[tuple[dict[str, str], bytes]]:
    """All tries, once they are so many."""
    wait_until(lambda: len(Hook.came) >= count, 30, f"{count} tries")
    return Hook.came


def delivered(place: Place, count: int) -> None:
    sql = "SELECT count(*) AS n FROM delivery WHERE state = 'delivered'"
    wait_until(lambda: place.store.rows(sql)[0]["n"] == count, 30, f"{count} deliveries")


def assert_verified(tries: list[tuple[dict[str, str], bytes]], secret: str) -> None:
    """Each of them is what a receiver takes."""
    client = openai.OpenAI(api_key="none", base_url="http://127.0.0.1", webhook_secret=secret)
    for headers, body in tries:
        Webhook(secret).verify(body, headers)
        event: Any = client.webhooks.unwrap(body, headers)
        assert event.id == headers["webhook-id"]


def test_the_same_comes_again_after_500_silence_302_and_deaths_of_the_server(
    new_place: NewPlace, port: int
) -> None:
    place = new_place(settings={**HOOKED, "webhooks.timeout_s": 20})
    place.start(*SOON)
    made = registered(place, port)
    Hook.script = ["error", "hang", "moved", "hang"]
    job = place.submit("[[tokens=3]]")
    came(2)
    place.restart(*SOON)  # while it waits for an answer
    came(4)
    place.restart(*SOON)
    tries = came(5)
    delivered(place, 1)
    assert {headers["webhook-id"] for headers, _ in tries} == {f"evt_{_report(place, job)}"}
    assert len({body for _, body in tries}) == 1
    assert_verified(tries, made["signing_secret"])


def test_a_server_that_dies_before_it_wrote_down_an_answer_sends_it_again(
    new_place: NewPlace, port: int
) -> None:
    place = new_place(settings=HOOKED)
    place.start("die-before app.services.webhooks.sender:Sender._write 1")
    made = registered(place, port)
    jobs = [place.submit(f"{n} [[tokens=1]]") for n in range(2)]
    place.parent_died()
    assert len(Hook.came) == 1
    place.start()
    delivered(place, 2)
    tries = came(3)
    ids = [headers["webhook-id"] for headers, _ in tries]
    assert ids[0] == ids[1] != ids[2]
    assert tries[0][1] == tries[1][1]
    assert {f"evt_{_report(place, job)}" for job in jobs} == set(ids)
    assert_verified(tries, made["signing_secret"])


def _report(place: Place, job: str) -> str:
    place.ended(job)
    return place.store.reports(job)[0]["id"]
