"""kill -9 of the server: its workers leave by themselves, and the next one puts things in order."""

import signal
from contextlib import ExitStack

from tests.e2e.calls import Call
from tests.e2e.server import RunningServer, Site
from tests.e2e.store import failure_code, job_id
from tests.waiting import wait_until

ENDLESS = "[[tokens=100000]]"


def killed_with_open_jobs(server: RunningServer, stack: ExitStack) -> list[str]:
    """Kill the server while two streams are open and one job waits; the jobs."""
    before = server.store.count()
    calls = [stack.enter_context(Call(server, f"{ENDLESS} {n}")) for n in range(3)]
    for call in calls[:2]:
        call.read_text(20)
    wait_until(lambda: server.store.count() == before + 3)
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    return [job["id"] for job in server.store.jobs()[before:]]


def assert_lost_with_their_parent(server: RunningServer, jobs: list[str]) -> None:
    for job in map(server.store.ended, jobs):
        assert (job["state"], failure_code(job)) == ("failed", "parent_lost")
        delivered = sum(a["delivered_tokens"] for a in server.store.attempts(job["id"]))
        assert job["completion_tokens"] == delivered
        assert all(a["outcome"] for a in server.store.attempts(job["id"]))
        (report,) = server.store.reports(job["id"])
        assert (report["outcome"], report["reason"]) == ("failed", "parent_lost")
    assert not [command for command in server.store.commands() if command["job"] in jobs]


def settings(orphan_grace_s: float) -> dict[str, float]:
    """One job more than rows, so that one of three waits."""
    return {"worker.orphan_grace_s": orphan_grace_s, "worker.rows": 2, "worker.prefetch": 0}


def test_a_worker_left_alone_leaves_after_the_grace_or_is_taken_over_before(site: Site) -> None:
    first = site.start({"step_s": 0.01}, settings(orphan_grace_s=1))
    done = job_id(first.chat("hello").json()["id"])
    with ExitStack() as stack:
        jobs = killed_with_open_jobs(first, stack)
    assert len(site.workers()) == 1
    wait_until(lambda: not site.workers(), 1 + 4, "the worker's leaving")
    assert {first.store.job(job)["state"] for job in jobs} == {"running", "available"}

    second = site.start({"step_s": 0.01}, settings(orphan_grace_s=60))
    assert_lost_with_their_parent(second, jobs)
    with ExitStack() as stack:
        jobs = killed_with_open_jobs(second, stack)
    (left,) = site.workers()

    third = site.start({"step_s": 0.01}, settings(orphan_grace_s=60))
    assert_lost_with_their_parent(third, jobs)
    assert third.store.job(done)["state"] == "completed"
    assert third.chat("hello").status_code == 200
    assert [worker.pid for worker in site.workers()] == [left.pid]
    assert all(len(third.store.reports(job["id"])) == 1 for job in third.store.jobs())
    assert third.stop() == 0
    assert not site.workers()
    assert not site.store.rows("SELECT 1 FROM generation WHERE state <> 'gone'")


def test_a_server_killed_while_its_worker_loads_leaves_nothing(site: Site) -> None:
    server = site.start({"load_s": 2}, settings(orphan_grace_s=1))
    with Call(server, "hello", stream=False):
        server.worker()
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: not site.workers(), 10, "the worker's leaving")
    again = site.start()
    assert_lost_with_their_parent(again, [job["id"] for job in again.store.jobs()])
    assert again.chat("hello").status_code == 200
