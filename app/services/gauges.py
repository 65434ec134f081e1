"""Every metric: a name, what it means, and where it is read from when someone asks."""

from collections.abc import Callable, Iterator

from app.dispatch.router import Router
from app.domain.view import RestartView
from app.services.endings import Endings
from app.services.fleet import Fleet
from app.services.ingestion import Ingestion
from app.services.ledger import Ledger
from app.services.overview import Gauge, Sample
from app.services.queues import Queues
from app.services.reception import Reception
from app.services.starts import Starts
from app.services.submission import Submission
from app.services.workers import Workers


def gauges(
    ledger: Ledger,
    fleet: Fleet,
    queues: Queues,
    starts: Starts,
    workers: Workers,
    endings: Endings,
    ingestion: Ingestion,
    submission: Submission,
    reception: Reception,
    router: Router,
) -> list[Gauge]:
    """The server's metrics."""
    return [
        *_of_jobs(ledger, queues, endings, ingestion, submission),
        *_of_workers(fleet, starts, workers),
        *_of_messages(fleet, ingestion, reception, router),
    ]


def _of_jobs(
    ledger: Ledger, queues: Queues, endings: Endings, ingestion: Ingestion, submission: Submission
) -> list[Gauge]:
    return [
        gauge("jobs_open", "Jobs that have not ended.", lambda: len(ledger)),
        gauge("jobs_waiting", "Jobs that wait for a row.", lambda: len(queues)),
        gauge("request_bytes", "Bytes of open requests in memory.", lambda: ledger.request_bytes),
        Gauge(
            name="jobs_ended",
            help="Jobs that ended since the start, by state.",
            counter=True,
            read=lambda: [
                ({"state": state}, float(count)) for state, count in endings.counts.items()
            ],
        ),
        counter(
            "jobs_refused_full",
            "Requests refused because too many waited.",
            lambda: submission.refused_full,
        ),
        counter("tokens", "Completion tokens received from workers.", lambda: ingestion.tokens),
    ]


def _of_workers(fleet: Fleet, starts: Starts, workers: Workers) -> list[Gauge]:
    return [
        Gauge(name="workers", help="Workers by model and state.", read=lambda: _workers(fleet)),
        Gauge(
            name="worker_gates",
            help="Workers by model and whether they are given work.",
            read=lambda: _gates(fleet),
        ),
        Gauge(name="worker_rows", help="Rows in use by model.", read=lambda: _rows(fleet)),
        counter("worker_starts", "Worker processes started.", lambda: starts.started),
        counter("worker_deaths", "Worker processes that died unasked.", lambda: workers.deaths),
        *_of_restarts(starts),
    ]


def _of_restarts(starts: Starts) -> list[Gauge]:
    def read(value: Callable[[RestartView], float]) -> Callable[[], list[Sample]]:
        return lambda: [({"model": view.model}, value(view)) for view in starts.restarts()]

    return [
        Gauge(
            name="restart_deaths",
            help="Deaths of workers that count against a model's restart budget.",
            read=read(lambda view: view.deaths),
        ),
        Gauge(
            name="restart_exhausted",
            help="Whether a model's restart budget is exhausted.",
            read=read(lambda view: view.exhausted),
        ),
        Gauge(
            name="restart_next_try_seconds",
            help="Seconds until a model's next start is allowed.",
            read=read(lambda view: view.next_try_s or 0.0),
        ),
    ]


def _of_messages(
    fleet: Fleet, ingestion: Ingestion, reception: Reception, router: Router
) -> list[Gauge]:
    return [
        counter("stale_events", "Events of no current attempt.", lambda: ingestion.stale_events),
        counter(
            "unknown_workers",
            "Messages of workers that this server did not start.",
            lambda: reception.strangers,
        ),
        counter(
            "malformed_messages",
            "Messages on the workers' socket that are none of the protocol's.",
            lambda: router.malformed,
        ),
        counter(
            "frames_repeated",
            "Frames received again and dropped.",
            lambda: sum(worker.session.repeated_frames for worker in fleet),
        ),
        counter(
            "frames_lost",
            "Frames that had to be asked for again.",
            lambda: sum(worker.session.lost_frames for worker in fleet),
        ),
        counter(
            "commands_lost",
            "Times that a worker had to be asked what it holds, since a command had not arrived.",
            lambda: sum(worker.session.lost_commands for worker in fleet),
        ),
    ]


def gauge(name: str, help_: str, read: Callable[[], float]) -> Gauge:
    """A metric of one value."""
    return Gauge(name=name, help=help_, read=lambda: [({}, float(read()))])


def counter(name: str, help_: str, read: Callable[[], float]) -> Gauge:
    """A metric of one value that only grows."""
    return Gauge(name=name, help=help_, read=lambda: [({}, float(read()))], counter=True)


def _workers(fleet: Fleet) -> Iterator[Sample]:
    for worker in fleet:
        yield {"model": worker.model, "state": worker.state}, 1.0


def _gates(fleet: Fleet) -> Iterator[Sample]:
    for worker in fleet:
        yield {"model": worker.model, "gate": worker.gate}, 1.0


def _rows(fleet: Fleet) -> Iterator[Sample]:
    for worker in fleet:
        yield {"model": worker.model}, float(len(worker.held))
