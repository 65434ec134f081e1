"""Jobs over HTTP: submitted, read, listed, cancelled and retried."""

import json
from typing import Any

import pytest

from app.domain import errors
from app.domain.draft import IdempotencyKey
from app.domain.job import JobState
from shared.failures import Failure
from tests.integration.http.doubles import FakeServices, refused_with
from tests.integration.http.job_doubles import completed, job_id, job_view
from tests.integration.http.serving import serving
from tests.integration.http.wire import Answer, ask

JOBS = "/v1/jobs"


def body(**fields: Any) -> bytes:
    """A valid submission, with changes."""
    messages = [{"role": "user", "content": "hello"}]
    return json.dumps(
        {"kind": "chat", "model": "tiny/model", "body": {"messages": messages}, **fields}
    ).encode()


def bulk(*jobs: bytes) -> bytes:
    return b'{"jobs":[' + b",".join(jobs) + b"]}"


def keyed(key: str) -> tuple[str]:
    return (f"Idempotency-Key: {key}",)


async def test_a_job_is_recorded_and_told() -> None:
    services = FakeServices()
    async with serving(services) as server:
        answer = await ask(server.port, JOBS, body(tags={"run": "7"}, **{"class": "batch"}))
        ticket = await services.tickets.get()
    assert answer.status == 202
    told = answer.json()
    assert (told["id"], told["object"], told["state"]) == (ticket.job_id, "job", "available")
    assert (told["class"], told["tags"], told["durability"]) == ("batch", {"run": "7"}, "durable")
    assert told["queue"] == {"position": 2}
    assert told["output"] == []
    assert "idempotent-replayed" not in answer.headers


async def test_leaving_a_submission_does_not_follow_it() -> None:
    services = FakeServices()
    async with serving(services) as server:
        await ask(server.port, JOBS, body())
        ticket = await services.tickets.get()
        assert ticket.follower.closed.is_set()
    assert ticket.cancels == 0


async def test_a_seed_that_nobody_named_is_told_and_can_be_named_again() -> None:
    services = FakeServices()
    async with serving(services) as server:
        first = (await ask(server.port, JOBS, body())).json()["seed"]
        second = (await ask(server.port, JOBS, body())).json()["seed"]
        again = (await ask(server.port, JOBS, body(seed=first))).json()["seed"]
    assert first != second
    assert again == first < 2**53


REFUSED: list[tuple[bytes, int, str, str | None]] = [
    (b"{", 400, "invalid_json", None),
    (body(colour=1), 400, "unknown_parameter", "colour"),
    (body(body={"messages": [], "n": 1}), 400, "unknown_parameter", "body.n"),
    (body(body={"messages": []}), 400, "invalid_value", "body.messages"),
    (body(body={}), 400, "missing_required_parameter", "body.messages"),
    (body(kind="poem"), 400, "invalid_value", "kind"),
]


@pytest.mark.parametrize(("sent", "status", "code", "param"), REFUSED)
async def test_a_submission_that_makes_no_sense_is_refused_by_its_field(
    sent: bytes, status: int, code: str, param: str | None
) -> None:
    services = FakeServices()
    async with serving(services) as server:
        answer = await ask(server.port, JOBS, sent)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)
    assert not services.drafts


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (errors.ModelNotFound("No 'x'. Models: y.", param="model"), 404),
        (errors.QueueFull(retry_after_s=2), 429),
        (errors.ShuttingDown(), 503),
        (errors.StorageFull(), 507),
    ],
)
@pytest.mark.parametrize("path", [JOBS, f"{JOBS}/bulk"])
async def test_what_the_services_refuse_is_a_status(
    refusal: errors.JobServerError, status: int, path: str
) -> None:
    async with serving(refused_with(refusal)) as server:
        sent = body() if path == JOBS else bulk(body())
        answer = await ask(server.port, path, sent)
    assert (answer.status, answer.error["code"]) == (status, refusal.code)
    assert answer.error["param"] == refusal.param


async def test_a_body_over_the_limit_is_refused() -> None:
    async with serving(FakeServices(), body_bytes_max=1024) as server:
        answer = await ask(server.port, JOBS, body(model="m" * 2000))
    assert (answer.status, answer.error["code"]) == (413, "request_too_large")


# --- idempotency keys ------------------------------------------------------------------------


async def test_the_same_key_and_body_are_the_same_job() -> None:
    services = FakeServices()
    async with serving(services) as server:
        first = await ask(server.port, JOBS, body(), headers=keyed("k 1"))
        again = await ask(server.port, JOBS, body(), headers=keyed("k 1"))
        other = await ask(server.port, JOBS, body(), headers=keyed("k 2"))
    assert (first.status, again.status) == (202, 202)
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert other.json()["id"] != first.json()["id"]
    key = services.drafts[0].idempotency
    assert isinstance(key, IdempotencyKey)
    assert (key.key, key.method, key.path) == ("k 1", "POST", "/v1/jobs")


async def test_a_body_that_is_written_differently_is_the_same() -> None:
    one = (
        b'{"kind":"chat","model":"m","body":{"messages":[{"role":"user","content":"x"}]},'
        b'"tags":{"a":"1","b":"2"},"deadline_s":60}'
    )
    two = (
        b'{ "tags":{"b":"2","a":"1"}, "deadline_s":60.0, "seed":null, "model":"m","kind":"chat",'
        b'"body":{"messages":[{"content":"x","role":"user"}]}}'
    )
    services = FakeServices()
    async with serving(services) as server:
        await ask(server.port, JOBS, one, headers=keyed("k"))
        again = await ask(server.port, JOBS, two, headers=keyed("k"))
    assert again.headers["idempotent-replayed"] == "true"


async def test_the_same_key_for_another_body_is_refused() -> None:
    services = FakeServices()
    async with serving(services) as server:
        await ask(server.port, JOBS, body(), headers=keyed("k"))
        answer = await ask(server.port, JOBS, body(priority=1), headers=keyed("k"))
    assert (answer.status, answer.error["code"]) == (422, "idempotency_key_mismatch")
    assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("key", "status"), [("x" * 255, 202), ("x" * 256, 400), ("é", 400)])
async def test_a_key_is_printable_and_not_too_long(key: str, status: int) -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, JOBS, body(), headers=keyed(key))
    assert answer.status == status
    if status == 400:
        assert answer.error["param"] == "Idempotency-Key"


async def test_a_retry_takes_a_key_of_its_own() -> None:
    services = FakeServices()
    services.add(completed())
    path = f"{JOBS}/{job_id(1)}/retry"
    async with serving(services) as server:
        answer = await ask(server.port, path, b"", headers=keyed("k"))
    assert answer.status == 202
    assert services.retried_with is not None
    assert (services.retried_with.key, services.retried_with.path) == ("k", path)


async def test_a_bulk_that_is_sent_again_with_its_key_makes_no_second_jobs() -> None:
    services = FakeServices()
    async with serving(services) as server:
        sent = bulk(body(), body())
        first = await ask(server.port, f"{JOBS}/bulk", sent, headers=keyed("k"))
        again = await ask(server.port, f"{JOBS}/bulk", sent, headers=keyed("k"))
    assert first.json() == again.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"


# --- bulk ------------------------------------------------------------------------------------


async def test_many_jobs_are_taken_at_once_and_in_order() -> None:
    services = FakeServices()
    async with serving(services) as server:
        sent = bulk(*(body(priority=n) for n in range(100)))
        answer = await ask(server.port, f"{JOBS}/bulk", sent)
    assert answer.status == 202
    assert answer.json() == {"object": "job.bulk", "ids": [job_id(n + 1) for n in range(100)]}
    assert [draft.priority for draft in services.drafts] == list(range(100))


async def test_one_wrong_job_is_named_and_none_is_taken() -> None:
    services = FakeServices()
    wrong = body(body={"messages": [{"role": "king", "content": "x"}]})
    async with serving(services) as server:
        answer = await ask(server.port, f"{JOBS}/bulk", bulk(*[body()] * 17, wrong))
    assert (answer.status, answer.error["param"]) == (400, "jobs[17].body.messages[0].role")
    assert not services.drafts


# --- one job ---------------------------------------------------------------------------------


async def test_a_job_is_told_whole() -> None:
    services = FakeServices()
    services.add(completed(3, "Paris."))
    async with serving(services) as server:
        answer = await ask(server.port, f"{JOBS}/{job_id(3)}")
    assert answer.status == 200
    assert answer.json() == {
        "id": job_id(3),
        "object": "job",
        "kind": "chat",
        "surface": "native",
        "model": "tiny/model",
        "tenant": "default",
        "durability": "durable",
        "class": "background",
        "priority": 0,
        "state": "completed",
        "attempt": 1,
        "failures": 0,
        "max_attempts": 1,
        "losses": 0,
        "preemptions": 0,
        "created_at": "2026-03-01T12:00:00Z",
        "scheduled_at": "2026-03-01T12:00:00Z",
        "deadline_at": "2026-03-08T12:00:00Z",
        "attempt_timeout_s": None,
        "started_at": "2026-03-01T12:00:01Z",
        "finalized_at": "2026-03-01T12:00:02Z",
        "stop_reason": None,
        "retry_of": None,
        "after": [],
        "on_failure": None,
        "schedule": None,
        "finish_reason": "stop",
        "failure": None,
        "usage": {
            "prompt_tokens": 7,
            "cached_tokens": 3,
            "completion_tokens": 2,
            "reasoning_tokens": 0,
            "total_tokens": 9,
        },
        "events": 6,
        "tags": {},
        "seed": 7,
        "queue": None,
        "output": [
            {
                "choice": 0,
                "items": [
                    {
                        "ordinal": 0,
                        "kind": "message",
                        "name": None,
                        "text": "Paris.",
                        "closed": True,
                    }
                ],
                "finish_reason": "stop",
            }
        ],
    }


async def test_a_failed_job_says_why() -> None:
    services = FakeServices()
    failure = Failure("worker_crashed", "It died.", retryable=True)
    services.add(job_view(state=JobState.FAILED, failure=failure, position=None))
    async with serving(services) as server:
        told = (await ask(server.port, f"{JOBS}/{job_id(1)}")).json()
    assert told["failure"] == {
        "code": "worker_crashed",
        "message": "It died.",
        "retryable": True,
        "param": None,
    }


ONE_JOB = [("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/retry")]


@pytest.mark.parametrize(("method", "suffix"), ONE_JOB)
async def test_an_unknown_job_and_one_of_another_tenant_are_not_found(
    method: str, suffix: str
) -> None:
    services = FakeServices()
    services.add(completed(1, tenant="theirs"))
    sent = b"" if method == "POST" else None
    async with serving(services) as server:
        for path in (job_id(1), job_id(2), "nonsense", "%00", f"{job_id(1)}{suffix}?tenant=x"):
            answer = await ask(
                server.port, f"{JOBS}/{path}{suffix if '?' not in path else ''}", sent
            )
            assert (answer.status, answer.error["code"]) == (404, "job_not_found")
        answer = await ask(server.port, f"{JOBS}/{job_id(1)}?tenant=theirs")
        assert answer.status == 200


@pytest.mark.parametrize(("method", "suffix"), ONE_JOB)
async def test_an_unknown_query_parameter_is_refused(method: str, suffix: str) -> None:
    services = FakeServices()
    services.add(completed())
    sent = b"" if method == "POST" else None
    async with serving(services) as server:
        answer = await ask(server.port, f"{JOBS}/{job_id(1)}{suffix}?colour=red", sent)
    assert (answer.status, answer.error["code"]) == (400, "unknown_parameter")
    assert answer.error["param"] == "colour"


async def test_a_cancelled_job_is_answered_and_cancelling_again_changes_nothing() -> None:
    services = FakeServices()
    services.add(job_view(1), completed(2))
    async with serving(services) as server:
        first = await ask(server.port, f"{JOBS}/{job_id(1)}/cancel", b"")
        again = await ask(server.port, f"{JOBS}/{job_id(1)}/cancel", b"")
        done = await ask(server.port, f"{JOBS}/{job_id(2)}/cancel", b"")
    assert (first.status, first.json()["state"]) == (200, "cancelled")
    assert first.json()["stop_reason"] == "cancel"
    assert (again.status, again.json()) == (200, first.json())
    assert (done.status, done.json()["state"]) == (200, "completed")


async def test_a_retry_is_a_new_job_that_names_the_old_one() -> None:
    services = FakeServices()
    services.add(completed(9), job_view(8))
    async with serving(services) as server:
        answer = await ask(server.port, f"{JOBS}/{job_id(9)}/retry", b"")
        refused = await ask(server.port, f"{JOBS}/{job_id(8)}/retry", b"")
    assert answer.status == 202
    assert answer.json()["retry_of"] == job_id(9)
    assert answer.json()["id"] != job_id(9)
    assert (refused.status, refused.error["code"]) == (400, "invalid_value")


# --- lists -----------------------------------------------------------------------------------


def filled() -> FakeServices:
    services = FakeServices()
    services.add(
        *(job_view(n) for n in range(1, 31)),
        completed(31, tags={"run": "7:a"}),
        completed(32, model="other"),
        completed(33, tenant="theirs"),
    )
    return services


def ids(answer: Answer) -> list[str]:
    return [job["id"] for job in answer.json()["data"]]


async def test_a_list_is_newest_first_in_pages_that_join_up() -> None:
    async with serving(filled()) as server:
        pages = [await ask(server.port, JOBS)]
        while pages[-1].json()["has_more"]:
            after = pages[-1].json()["last_id"]
            pages.append(await ask(server.port, f"{JOBS}?after={after}"))
    assert [len(ids(page)) for page in pages] == [20, 12]
    assert [job for page in pages for job in ids(page)] == [job_id(n) for n in range(32, 0, -1)]
    first = pages[0].json()
    assert first["object"] == "list"
    assert (first["first_id"], first["last_id"]) == (job_id(32), job_id(13))
    assert all("output" not in job for job in first["data"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=completed", [32, 31]),
        ("state=completed,failed&limit=1", [32]),
        ("state=completed&state=cancelled", [32, 31]),
        ("tag=run:7:a", [31]),
        ("tag=run:8", []),
        ("model=other", [32]),
        ("tenant=theirs", [33]),
        ("tenant=nobody", []),
        (f"after={job_id(3)}", [2, 1]),
        ("limit=2", [32, 31]),
    ],
)
async def test_a_list_is_narrowed_by_its_query(query: str, found: list[int]) -> None:
    async with serving(filled()) as server:
        answer = await ask(server.port, f"{JOBS}?{query}")
    assert ids(answer) == [job_id(n) for n in found]


async def test_an_empty_list_has_no_ids() -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, JOBS)
    assert answer.json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("colour=red", "unknown_parameter", "colour"),
        ("state=done", "invalid_value", "state"),
        ("state=", "invalid_value", "state"),
        ("limit=0", "invalid_value", "limit"),
        ("limit=101", "invalid_value", "limit"),
        ("limit=-1", "invalid_value", "limit"),
        ("limit=ten", "invalid_value", "limit"),
        ("limit=%D9%A1", "invalid_value", "limit"),
        ("limit=1&limit=2", "invalid_value", "limit"),
        ("after=job_1", "invalid_value", "after"),
        ("tag=run", "invalid_value", "tag"),
        ("tag=:x", "invalid_value", "tag"),
        ("tag=a:b&tag=c:d", "invalid_value", "tag"),
        ("model=", "invalid_value", "model"),
        ("tenant=a%20b", "invalid_value", "tenant"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused_by_its_parameter(
    query: str, code: str, param: str
) -> None:
    async with serving(filled()) as server:
        answer = await ask(server.port, f"{JOBS}?{query}")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param)


async def test_the_document_describes_every_operation() -> None:
    async with serving(FakeServices()) as server:
        document = (await ask(server.port, "/schema/openapi.json")).json()
    paths = document["paths"]
    found = {
        operation["operationId"]: operation
        for path, item in paths.items()
        if path.startswith(("/v1/jobs", "/admin"))
        for operation in item.values()
    }
    assert set(found) == {
        "createJob",
        "createJobs",
        "listJobs",
        "retrieveJob",
        "followJob",
        "cancelJob",
        "retryJob",
        "startDrain",
        "retrieveDrain",
        "resume",
        "retrieveStatus",
        "resetModel",
    }
    request = found["createJob"]["requestBody"]["content"]["application/json"]["schema"]
    assert request["required"] == ["kind", "model", "body"]
    assert request["additionalProperties"] is False
    assert {"class", "scheduled_at", "tags"} <= set(request["properties"])
    assert {item["name"] for item in found["listJobs"]["parameters"]} == {
        "state",
        "tenant",
        "tag",
        "model",
        "after",
        "limit",
    }
    assert "text/event-stream" in found["followJob"]["responses"]["200"]["content"]
    schemas = document["components"]["schemas"]
    job = next(schema for name, schema in schemas.items() if name.endswith("JobObject"))
    assert {"class", "queue", "usage", "output"} <= set(job["properties"])
