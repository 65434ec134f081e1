"""Where webhooks are sent, and where they are not: not by any name, not at any moment."""

import socket
import threading
from pathlib import Path

import pytest

from app.domain.addresses import networks
from app.domain.errors import JobServerError
from app.outbound import resolving
from app.outbound.posting import Posting
from app.services.webhooks.addressing import Permits
from tests.integration.webhooks.receiving import Receiver
from tests.integration.webhooks.sending import Sending, sending

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "http:///path",
        "example.com",
        "http://user:secret@example.com/",
        "http://example.com/#part",
        "http://example.com:0/",
        "http://exa mple.com/",
        "http://[::1",
        "http://example.com/" + "x" * 2048,
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:10.0.0.1]/",
        "http://10.1.2.3:8080/",
        "http://2130706433/",
        "http://0x7f.1/",
    ],
)
async def test_a_url_that_leads_nowhere_good_is_refused(tmp_path: Path, url: str) -> None:
    async with sending(tmp_path / "data", allowed_networks=[]) as hooks:
        with pytest.raises(JobServerError) as refused:
            await hooks.endpoint(url)
        assert (refused.value.code, refused.value.param) == ("webhook_url_refused", "url")
        assert await hooks.endpoints.all(None) == []


async def test_loopback_is_taken_only_if_the_settings_say_so(
    tmp_path: Path, hook: Receiver
) -> None:
    async with sending(tmp_path / "data", allowed_networks=[]) as hooks:
        with pytest.raises(JobServerError, match=r"loopback.*webhooks\.allowed_networks"):
            await hooks.endpoint(hook.url)
    assert hook.connections == 0


async def test_a_name_that_leads_elsewhere_a_moment_later_is_not_followed(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [PUBLIC, "127.0.0.1"]

    def rebound(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(resolving.socket, "getaddrinfo", rebound)
    permits = Permits(resolving.Resolver().addresses, ())
    assert await permits("receiver.example", hook.port) == [PUBLIC]
    poster = Posting().poster(permits, 5.0)
    answer = await poster.post(f"http://receiver.example:{hook.port}/hook", {}, b"{}")
    await poster.close()
    assert (answer.status, hook.connections) == (None, 0)
    assert "127.0.0.1 is a loopback address" in (answer.error or "")


async def test_the_connection_goes_to_the_address_that_was_judged(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []

    def once(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        looked_up.append(host)
        found = [] if len(looked_up) > 1 else ["10.9.9.9", "127.0.0.1"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(resolving.socket, "getaddrinfo", once)
    poster = Posting().poster(Permits(resolving.Resolver().addresses, networks(["loopback"])), 5.0)
    url = f"http://receiver.example:{hook.port}/hook"
    answers = [await poster.post(url, {"webhook-id": "evt_1"}, b"{}") for _ in range(2)]
    await poster.close()
    assert [answer.status for answer in answers] == [200, 200]
    assert looked_up == ["receiver.example"]
    assert hook.arrivals[0].headers["host"] == f"receiver.example:{hook.port}"


async def test_a_name_server_that_hangs_holds_up_nobody_else(
    tmp_path: Path, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: set[str] = set()
    stuck: list[str] = []
    released = threading.Event()

    def hanging(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if host in known and host != "127.0.0.1":
            stuck.append(host)
            released.wait(10)
        known.add(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(resolving.socket, "getaddrinfo", hanging)
    async with sending(tmp_path / "data", timeout_s=60) as hooks:
        for number in range(10):
            await hooks.endpoint(f"http://receiver-{number}.example/")
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(3)
        await hooks.stands(made.id, *["delivered"] * 3)
        assert len(stuck) == len(set(stuck)) == 10
        released.set()


async def test_a_sample_says_what_the_endpoint_answers(hooks: Sending, hook: Receiver) -> None:
    made = (await hooks.endpoint(hook.url)).endpoint
    hook.behaves = lambda _: "error"
    tried = await hooks.endpoints.test(made.id, None, "job.failed")
    assert (tried.status, tried.type) == (500, "job.failed")
    assert hook.arrivals[0].event["data"]["sample"]
    hook.behaves = lambda _: "cut"
    with pytest.raises(JobServerError) as refused:
        await hooks.endpoints.test(made.id, None, None)
    assert refused.value.code == "webhook_unanswered"
    assert await hooks.told(made.id) == []
