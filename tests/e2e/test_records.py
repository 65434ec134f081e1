"""Every request is one job with one report, counted as its answer says, and without its text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.calls import Call, text_of
from tests.e2e.conversing import ask, ask_at_once, ask_for_stream
from tests.e2e.server import RunningServer, Site
from tests.e2e.store import Row, failure_code, job_id, usage
from tests.waiting import wait_until

PROMPT_MARK = "Kolibri-8431"
OUTPUT_MARK = "Quetzal-9277"


@pytest.fixture(params=["scripted", "tiny"])
def server(request: pytest.FixtureRequest) -> RunningServer:
    return request.getfixturevalue(request.param)


def recorded(server: RunningServer, answer_id: str) -> Row:
    """The job behind an answer, whose one report must say the same."""
    job = server.store.ended(job_id(answer_id))
    (report,) = server.store.reports(job["id"])
    payload = report["payload"]
    assert payload["job"] == job["id"]
    assert payload["outcome"] == report["outcome"] == job["state"]
    assert usage(payload["usage"]) == usage(job)
    assert (payload["complete"], payload["attempts"]) == (True, job["attempt"])
    return job


def test_each_request_is_one_job_whose_usage_is_that_of_its_answer(server: RunningServer) -> None:
    before = server.store.count()
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 9}
    for said in (ask(server, "Hello", **fields), ask_for_stream(server, "Hello", **fields)):
        job = recorded(server, said.id)
        assert (job["state"], job["finish_reason"]) == ("completed", said.finish)
        assert usage(job) == said.tokens
        (attempt,) = server.store.attempts(job["id"])
        assert attempt["outcome"] == "finished"
        assert attempt["prompt_tokens"] == attempt["prefill_tokens"] == said.tokens[0]
        assert attempt["delivered_tokens"] == said.tokens[1]
        assert (job["durability"], job["class"]) == ("attached", "interactive")
        assert (job["model"], job["surface"]) == (server.model, "chat")
        assert job["created_at"] <= job["started_at"] <= job["finalized_at"]
    assert server.store.count() == before + 2
    assert not server.store.commands()


async def test_many_requests_at_once_are_as_many_jobs(scripted: RunningServer) -> None:
    before = scripted.store.count()
    requests = [(f"[[tokens={n}]] {n}", {"seed": n}) for n in range(1, 41)]
    answers = await ask_at_once(scripted, requests)
    jobs = [recorded(scripted, said.id) for said in answers]
    assert [usage(job) for job in jobs] == [said.tokens for said in answers]
    assert [said.tokens[1] for said in answers] == [n + 1 for n in range(1, 41)]
    assert scripted.store.count() == before + 40
    sums = "SELECT sum(prompt_tokens) p, sum(completion_tokens) c FROM"
    (total,) = scripted.store.rows(f"{sums} job")
    assert scripted.store.rows(f"{sums} generation") == [total]
    feed = [row["seq"] for row in scripted.store.rows("SELECT seq FROM report ORDER BY seq")]
    assert feed == list(range(1, len(feed) + 1))


@pytest.mark.parametrize(
    ("content", "code", "outcome"),
    [
        ("[[refuse=no]]", "template_error", "refused"),
        ("x" * 9_000, "context_length_exceeded", "refused"),
        ("[[reject_at=2]]", "scripted_failure", "failed"),
    ],
)
def test_what_a_worker_refuses_or_fails_is_recorded_as_that(
    scripted: RunningServer, content: str, code: str, outcome: str
) -> None:
    before = scripted.store.count()
    assert scripted.chat(content).status_code >= 400
    job = recorded(scripted, scripted.store.submitted_after(before))
    assert (job["state"], failure_code(job)) == ("failed", code)
    (attempt,) = scripted.store.attempts(job["id"])
    assert attempt["outcome"] == outcome
    assert usage(job) == (attempt["prompt_tokens"], attempt["delivered_tokens"])


def files_of(site: Site) -> Iterator[Path]:
    """Every file that the server and its workers have written."""
    for top in (site.root, site.runtime_dir):
        yield from (path for path in top.rglob("*") if path.is_file())


def forms_of(mark: str) -> list[bytes]:
    """A text as it might lie in a file."""
    return [mark.encode(), mark.encode("utf-16-le"), mark.encode().hex().encode()]


def test_no_text_of_a_request_or_an_answer_is_written_anywhere(site: Site) -> None:
    settings = {"log.level": "debug", "worker.rows": 1, "worker.prefetch": 1}
    server = site.start({"step_s": 0.001}, settings)

    def turns(order: str) -> dict[str, Any]:
        system = {"role": "system", "content": PROMPT_MARK, "name": PROMPT_MARK}
        user = {"role": "user", "content": f"{PROMPT_MARK} {order}"}
        return {"messages": [system, user], "stop": [f"{PROMPT_MARK}!"], "user": PROMPT_MARK}

    say = f"[[say={OUTPUT_MARK}]]"
    plain = server.chat("", **turns(say))
    assert plain.json()["choices"][0]["message"]["content"] == OUTPUT_MARK
    with Call(server, "", **turns(say)) as call:
        assert text_of(list(call.events())) == OUTPUT_MARK
    quoting = f"[[refuse=What is {PROMPT_MARK}?]]"
    assert PROMPT_MARK in server.chat("", **turns(quoting)).json()["error"]["message"]
    for order in ("[[fail_at=3]]", "[[raise_at=2]]", "[[nonsense=1]]"):
        assert server.chat("", **turns(f"{say} {order}")).status_code >= 400
    assert server.chat("", **turns("x" * 9_000)).status_code == 400
    assert server.chat("", **turns(say), temperature=PROMPT_MARK).status_code == 400
    assert server.client.post(f"{server.base}/v1/chat/completions", content=PROMPT_MARK).is_error
    with Call(server, "", **turns("[[tokens=100000]]")) as left:
        left.read_text()
        with Call(server, "", **turns(say)), Call(server, "", **turns(say), stream=False):
            wait_until(lambda: server.metric("jobs_open") == 3)
    server.wait_until_idle()
    with Call(server, "", **turns(f"{say} [[crash_once_at=4]]")) as crashed:
        assert text_of(list(crashed.events())) == OUTPUT_MARK
    assert server.chat("", **turns(say)).status_code == 200

    def assert_unwritten() -> None:
        files = list(files_of(site))
        content = {path: path.read_bytes() for path in files}
        for mark in (PROMPT_MARK, OUTPUT_MARK):
            found = [path for path in files for form in forms_of(mark) if form in content[path]]
            assert not found

    names = {path.name for path in files_of(site)}
    assert {"mlxq.db", "mlxq.db-wal", "server.log"} <= names
    assert len([name for name in names if name.startswith("gen_")]) == 2
    assert_unwritten()
    assert server.store.count() == 12
    assert server.stop() == 0
    assert_unwritten()
