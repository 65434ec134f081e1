"""SIGTERM: open streams finish within the grace, or are told that they were interrupted."""

import signal
from contextlib import ExitStack

from tests.e2e.calls import Call, error_of, finish_of, rest_of, text_of
from tests.e2e.server import RunningServer, Site
from tests.e2e.store import failure_code, job_id, usage
from tests.waiting import wait_until


def stopping(server: RunningServer) -> bool:
    answer = server.get("/readyz")
    return answer.status_code == 503 and answer.json()["reason"] == "the server is stopping"


def test_two_streams_and_a_request_that_waits_finish_within_the_grace(site: Site) -> None:
    server = site.start({"step_s": 0.02}, {"worker.rows": 2, "worker.prefetch": 0})
    with Call(server, "[[tokens=40]]", seed=1) as call:
        alone = text_of(list(call.events()))
    with ExitStack() as stack:
        streams = [stack.enter_context(Call(server, "[[tokens=40]]", seed=1)) for _ in range(2)]
        begun = [stream.read_text(5) for stream in streams]
        plain = stack.enter_context(Call(server, "[[tokens=40]]", seed=1, stream=False))
        wait_until(lambda: server.metric("jobs_waiting") == 1)
        server.tell(signal.SIGTERM)
        wait_until(lambda: stopping(server))
        for begin, events in zip(begun, rest_of(streams), strict=True):
            assert finish_of(events) == "stop"
            assert begin + text_of(events) == alone
        assert plain.status == 200
        assert plain.body()["choices"][0]["message"]["content"] == alone
    assert server.ended() == 0
    assert not site.workers()
    assert [job["state"] for job in server.store.jobs()] == ["completed"] * 4
    assert not server.store.commands()


def test_after_a_short_grace_streams_are_told_that_they_were_interrupted(site: Site) -> None:
    server = site.start({"step_s": 0.02}, {"server.shutdown_grace_s": 0.3})
    with ExitStack() as stack:
        streams = [stack.enter_context(Call(server, "[[tokens=100000]]")) for _ in range(2)]
        plain = stack.enter_context(Call(server, "[[tokens=100000]]", stream=False))
        for stream in streams:
            stream.read_text(5)
        wait_until(lambda: server.metric("jobs_open") == 3)
        server.tell(signal.SIGTERM)
        answers = rest_of(streams)
        assert plain.status == 503
        assert plain.body()["error"]["code"] == "stream_interrupted"
    for events in answers:
        error = error_of(events)
        assert error is not None
        assert (error["code"], error["type"]) == ("stream_interrupted", "server_error")
        assert finish_of(events) is None
    assert server.ended() == 0
    assert not site.workers()
    for stream in streams:
        job = server.store.job(job_id(stream.answer_id))
        (attempt,) = server.store.attempts(job["id"])
        assert (job["state"], failure_code(job)) == ("failed", "parent_lost")
        assert attempt["outcome"] == "stopped"
        assert attempt["delivered_tokens"] == job["completion_tokens"] > 0
    assert len({job["id"] for job in server.store.jobs()}) == 3
    assert all(len(server.store.reports(job["id"])) == 1 for job in server.store.jobs())
    assert not server.store.commands()


def test_nothing_new_is_taken_meanwhile_and_a_second_signal_ends_the_wait(site: Site) -> None:
    server = site.start({"step_s": 0.02})
    with Call(server, "[[tokens=100000]]") as stream:
        stream.read_text(5)
        server.tell(signal.SIGTERM)
        wait_until(lambda: stopping(server))
        for streamed in (False, True):
            answer = server.chat("hello", stream=streamed)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "shutting_down")
            assert (error["type"], error["param"]) == ("server_error", None)
            assert answer.headers["retry-after"] == "5"
        assert server.process.poll() is None
        server.tell(signal.SIGTERM)
        assert server.ended(timeout=8) == 0
        (events,) = rest_of([stream])
    error = error_of(events)
    assert error is not None
    assert error["code"] == "stream_interrupted"
    (job,) = server.store.jobs()
    assert (job["state"], failure_code(job)) == ("failed", "parent_lost")
    assert len(server.store.reports(job["id"])) == 1
    assert "Traceback" not in site.log.read_text()
    assert not site.workers()


def test_an_idle_server_stops_at_once_also_on_ctrl_c_and_starts_again(site: Site) -> None:
    server = site.start()
    said = server.chat("hello", seed=1).json()
    assert server.stop(signal.SIGINT, timeout=8) == 0
    assert not site.workers()
    again = site.start()
    assert again.chat("hello", seed=1).json()["choices"] == said["choices"]
    jobs = again.store.jobs()
    assert [usage(job) for job in jobs] == [usage(said["usage"])] * 2
    assert again.stop(timeout=8) == 0
