"""``/v1/jobs``: the paths, and what the OpenAPI document says of them."""

from typing import Any

from litestar import Controller, Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.http.documentation import answers
from app.http.native.documentation import (
    BulkOperation,
    EventsOperation,
    JobOperation,
    ListOperation,
    RetryOperation,
    SubmitOperation,
)
from app.http.native.following import EventsDoor
from app.http.native.jobs import PATH, JobsDoor
from app.http.native.schema import BulkAnswer, JobList, JobObject
from shared.ids import JobId

HttpRequest = Request[Any, Any, Any]


class JobsController(Controller):
    """Jobs."""

    path = PATH
    tags = ("Jobs",)

    @post(
        operation_id="createJob",
        summary="Submit a job",
        operation_class=SubmitOperation,
        status_code=202,
        responses=answers(JobObject, 202, 400, 404, 413, 422, 429, 503, 507),
    )
    async def create(self, request: HttpRequest, jobs: NamedDependency[JobsDoor]) -> Response[Any]:
        """Records a durable job: when this answers, it will be done or its failure be told."""
        return await jobs.submit(request)

    @post(
        "/bulk",
        operation_id="createJobs",
        summary="Submit many jobs",
        operation_class=BulkOperation,
        status_code=202,
        responses=answers(BulkAnswer, 202, 400, 404, 413, 422, 429, 503, 507),
    )
    async def create_many(
        self, request: HttpRequest, jobs: NamedDependency[JobsDoor]
    ) -> Response[Any]:
        """Records up to 1,000 jobs, all or none."""
        return await jobs.submit_many(request)

    @get(
        operation_id="listJobs",
        summary="List jobs",
        operation_class=ListOperation,
        responses=answers(JobList, 200, 400),
    )
    async def list_jobs(
        self, request: HttpRequest, jobs: NamedDependency[JobsDoor]
    ) -> Response[Any]:
        """A page of jobs, newest first, without their output."""
        return await jobs.list(request)

    @get(
        "/{job_id:str}",
        operation_id="retrieveJob",
        summary="Retrieve a job",
        operation_class=JobOperation,
        responses=answers(JobObject, 200, 400, 404),
    )
    async def retrieve(
        self, request: HttpRequest, job_id: FromPath[str], jobs: NamedDependency[JobsDoor]
    ) -> Response[Any]:
        """A job, with its output so far and its place in the queue."""
        return await jobs.get(request, JobId(job_id))

    @get(
        "/{job_id:str}/events",
        operation_id="followJob",
        summary="Follow a job",
        operation_class=EventsOperation,
        responses=answers(None, 200, 400, 404),
    )
    async def follow(
        self, request: HttpRequest, job_id: FromPath[str], events: NamedDependency[EventsDoor]
    ) -> Response[Any]:
        """The job's events as they happen; they end with it. Leaving changes nothing for it."""
        return events.answer(request, JobId(job_id))

    @post(
        "/{job_id:str}/cancel",
        operation_id="cancelJob",
        summary="Cancel a job",
        operation_class=JobOperation,
        status_code=200,
        responses=answers(JobObject, 200, 400, 404, 507),
    )
    async def cancel(
        self, request: HttpRequest, job_id: FromPath[str], jobs: NamedDependency[JobsDoor]
    ) -> Response[Any]:
        """Asks a job to stop, and waits a little for its end. One that has ended stays as it is."""
        return await jobs.cancel(request, JobId(job_id))

    @post(
        "/{job_id:str}/retry",
        operation_id="retryJob",
        summary="Retry a job",
        operation_class=RetryOperation,
        status_code=202,
        responses=answers(JobObject, 202, 400, 404, 422, 429, 503, 507),
    )
    async def retry(
        self, request: HttpRequest, job_id: FromPath[str], jobs: NamedDependency[JobsDoor]
    ) -> Response[Any]:
        """A new job that asks for the same as one that has ended, and has `retry_of`."""
        return await jobs.retry(request, JobId(job_id))
