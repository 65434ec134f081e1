"""Every metric: a name, what it means, and where it is read from when someone asks."""

from collections.abc import Callable, Iterator

from app.dispatch.router import Router
from app.services.endings import Endings
from app.services.fleet import Fleet
from app.services.ingestion import Ingestion
from app.services.ledger import Ledger
from app.services.overview import Gauge, Sample
from app.services.reception import Reception
from app.services.relay import Relay
from app.services.starts import Starts
from app.services.submission import Submission
from app.services.workers import Workers
from app.storage.writer import Writer


def gauges(
    ledger: Ledger,
    fleet: Fleet,
    relay: Relay,
    starts: Starts,
    workers: Workers,
    endings: Endings,
    ingestion: Ingestion,
    submission: Submission,
    writer: Writer,
    reception: Reception,
    router: Router,
) -> list[Gauge]:
    """The server's metrics."""
    return [
        *_of_jobs(ledger, relay, endings, ingestion, submission),
        *_of_workers(fleet, starts, workers),
        *_of_messages(fleet, ingestion, reception, router),
        *_of_the_store(writer),
    ]


def _of_jobs(
    ledger: Ledger, relay: Relay, endings: Endings, ingestion: Ingestion, submission: Submission
) -> list[Gauge]:
    return [
        _gauge("jobs_open", "Jobs that have not ended.", lambda: len(ledger)),
        _gauge("jobs_waiting", "Jobs that wait for a row.", relay.waiting_count),
        _gauge("request_bytes", "Bytes of open requests in memory.", lambda: ledger.request_bytes),
        Gauge(
            name="jobs_ended",
            help="Jobs that ended since the start, by state.",
            counter=True,
            read=lambda: [
                ({"state": state}, float(count)) for state, count in endings.counts.items()
            ],
        ),
        _counter(
            "jobs_refused_full",
            "Requests refused because too many waited.",
            lambda: submission.refused_full,
        ),
        _counter("tokens", "Completion tokens received from workers.", lambda: ingestion.tokens),
    ]


def _of_workers(fleet: Fleet, starts: Starts, workers: Workers) -> list[Gauge]:
    return [
        Gauge(name="workers", help="Workers by model and state.", read=lambda: _workers(fleet)),
        Gauge(name="worker_rows", help="Rows in use by model.", read=lambda: _rows(fleet)),
        _counter("worker_starts", "Worker processes started.", lambda: starts.started),
        _counter("worker_deaths", "Worker processes that died unasked.", lambda: workers.deaths),
    ]


def _of_messages(
    fleet: Fleet, ingestion: Ingestion, reception: Reception, router: Router
) -> list[Gauge]:
    return [
        _counter("stale_events", "Events of no current attempt.", lambda: ingestion.stale_events),
        _counter(
            "unknown_workers",
            "Messages of workers that this server did not start.",
            lambda: reception.strangers,
        ),
        _counter(
            "malformed_messages",
            "Messages on the workers' socket that are none of the protocol's.",
            lambda: router.malformed,
        ),
        _counter(
            "frames_repeated",
            "Frames received again and dropped.",
            lambda: sum(worker.session.repeated_frames for worker in fleet),
        ),
        _counter(
            "frames_lost",
            "Frames that had to be asked for again.",
            lambda: sum(worker.session.lost_frames for worker in fleet),
        ),
    ]


def _of_the_store(writer: Writer) -> list[Gauge]:
    return [
        _counter(
            "store_commits", "Transactions committed.", lambda: writer.counts.committed.commits
        ),
        _counter(
            "store_operations", "Operations committed.", lambda: writer.counts.committed.operations
        ),
        _counter(
            "store_voids", "Operations that changed nothing.", lambda: writer.counts.committed.voids
        ),
        _counter(
            "store_checkpoints_incomplete",
            "Checkpoints that a reader held up.",
            lambda: writer.counts.log.incomplete_checkpoints,
        ),
        _gauge("store_waiting", "Operations that wait for the writer.", lambda: writer.depth),
    ]


def _gauge(name: str, help_: str, read: Callable[[], float]) -> Gauge:
    return Gauge(name=name, help=help_, read=lambda: [({}, float(read()))])


def _counter(name: str, help_: str, read: Callable[[], float]) -> Gauge:
    return Gauge(name=name, help=help_, read=lambda: [({}, float(read()))], counter=True)


def _workers(fleet: Fleet) -> Iterator[Sample]:
    for worker in fleet:
        yield {"model": worker.model, "state": worker.state}, 1.0


def _rows(fleet: Fleet) -> Iterator[Sample]:
    for worker in fleet:
        yield {"model": worker.model}, float(len(worker.held))
