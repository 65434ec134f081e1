"""Changes of a worker generation's row: started, ready, stopping, lost, gone.

    starting ─▶ ready ─▶ stopping ─▶ gone
        └──────────┴─────────┴─▶ lost ─▶ gone

A generation cannot become lost or gone while an attempt on it is open: whoever declares it over
must say in the same operation what becomes of every job it held.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from app.domain.gate import Gate, GateEvent, sources
from app.domain.job import Ending, NewJob, StopReason
from app.storage.encoding import micros
from app.storage.endings import GiveBack, give_back_steps, running_end_steps
from app.storage.frames import frame_cursor
from app.storage.operations import (
    NewReceipt,
    NewReport,
    Operation,
    Params,
    Rank,
    Statement,
    Step,
    in_commit_order,
)
from app.storage.reports import job_report
from app.storage.sql import insert
from shared.ids import GenerationId


def _from(event: GateEvent, to: Gate) -> str:
    gates = ", ".join(f"'{gate}'" for gate in sources(event, to))
    return f"gate IN ({gates})"


_NO_OPEN_ATTEMPT: Final = (
    " AND NOT EXISTS (SELECT 1 FROM attempt WHERE generation = :generation AND outcome IS NULL)"
)

_INSERT: Final = Statement(
    "generation.insert",
    Rank.GENERATION_INSERT,
    insert("generation", ("id", "model", "state", "parent_epoch", "log_path", "created_at")),
)

_READY: Final = Statement(
    "generation.ready",
    Rank.GENERATION_READY,
    "UPDATE generation SET state = 'ready', gate = 'serving', ready_at = :now,"  # noqa: S608
    " fingerprint = coalesce(:fingerprint, fingerprint)"
    f" WHERE id = :generation AND state = 'starting' AND {_from(GateEvent.LOADED, Gate.SERVING)}",
)

_PROCESS: Final = Statement(
    "generation.process",
    Rank.GENERATION_PROCESS,
    "UPDATE generation SET pid = :pid, pid_started = :pid_started"
    " WHERE id = :generation AND state NOT IN ('lost', 'gone')",
)

_STOP: Final = Statement(
    "generation.stop",
    Rank.GENERATION_STOP,
    "UPDATE generation SET state = 'stopping', gate = 'stopping' WHERE id = :generation"  # noqa: S608
    f" AND state IN ('starting', 'ready') AND {_from(GateEvent.STOP, Gate.STOPPING)}",
)

_LOST: Final = Statement(
    "generation.lost",
    Rank.GENERATION_LOST,
    "UPDATE generation SET state = 'lost', gate = 'failed', ended_at = :now, exit_reason = :reason"  # noqa: S608
    " WHERE id = :generation AND state NOT IN ('lost', 'gone')" + _NO_OPEN_ATTEMPT,
)

_GONE: Final = Statement(
    "generation.gone",
    Rank.GENERATION_GONE,
    "UPDATE generation SET state = 'gone', ended_at = coalesce(ended_at, :now),"  # noqa: S608
    " gate = iif(gate = 'stopping', gate, 'failed'),"
    " exit_code = :code, exit_signal = :signal, exit_reason = coalesce(exit_reason, :reason)"
    " WHERE id = :generation AND state <> 'gone'" + _NO_OPEN_ATTEMPT,
)

_DROP_COMMANDS: Final = Statement(
    "command.drop_generation",
    Rank.COMMAND_DROP_GENERATION,
    "DELETE FROM command WHERE generation = :generation",
    exact=False,
)


def insert_generation(
    generation: GenerationId, model: str, epoch: int, log_path: Path, now: datetime
) -> Operation:
    """A worker process that is about to be started."""
    row: Params = {
        "id": generation,
        "model": model,
        "state": "starting",
        "parent_epoch": epoch,
        "log_path": str(log_path),
        "created_at": micros(now),
    }
    return _operation("insert_generation", generation, [Step(_INSERT, row, generation)])


def generation_process(generation: GenerationId, pid: int, pid_started: int) -> Operation:
    """The process of this generation is known: pid, and its start in clock ticks since boot."""
    params: Params = {"generation": generation, "pid": pid, "pid_started": pid_started}
    return _operation("generation_process", generation, [Step(_PROCESS, params, generation)])


def generation_ready(
    generation: GenerationId, now: datetime, fingerprint: str | None = None
) -> Operation:
    """The worker has loaded its model and takes jobs."""
    params: Params = {"generation": generation, "now": micros(now), "fingerprint": fingerprint}
    return _operation("generation_ready", generation, [Step(_READY, params, generation)])


def stop_generation(generation: GenerationId, receipt: NewReceipt | None = None) -> Operation:
    """No job goes to this worker any more: it is about to be told to leave. Void while it is being
    rebuilt, and when it is stopping or over already."""
    steps = [Step(_STOP, {"generation": generation}, generation)]
    return _operation("stop_generation", generation, steps, receipt=receipt)


def lose_generation(
    generation: GenerationId,
    now: datetime,
    reason: str,
    endings: Sequence[tuple[NewJob, Ending, StopReason | None]] = (),
    given_back: Sequence[GiveBack] = (),
    receipt: NewReceipt | None = None,
) -> Operation:
    """Nothing that this worker says counts any more, and each job it held ends or goes back.

    ``endings`` name the stop reason each decision was based on. Void at ``job.end`` or
    ``job.give_back`` when such a reason has changed, at ``generation.lost`` when a job is missing
    here or the generation was over already.
    """
    steps = [step for back in given_back for step in give_back_steps(back)]
    for _, ending, stop in endings:
        steps += running_end_steps(ending, stop, "lost")
    params: Params = {"generation": generation, "now": micros(now), "reason": reason}
    steps += [Step(_DROP_COMMANDS, params, generation), Step(_LOST, params, generation)]
    jobs = [ending.job for _, ending, _ in endings] + [back.job for back in given_back]
    reports = [job_report(new, ending) for new, ending, _ in endings]
    return _operation("lose_generation", generation, steps, jobs, reports, receipt)


def generation_gone(
    generation: GenerationId,
    now: datetime,
    exit_code: int | None,
    exit_signal: int | None,
    reason: str,
    receipt: NewReceipt | None = None,
) -> Operation:
    """The process is dead. Void while an attempt on it is open: declare it lost first."""
    params: Params = {
        "generation": generation,
        "now": micros(now),
        "code": exit_code,
        "signal": exit_signal,
        "reason": reason,
    }
    steps = [Step(_DROP_COMMANDS, params, generation), Step(_GONE, params, generation)]
    return _operation("generation_gone", generation, steps, receipt=receipt)


def _operation(
    name: str,
    generation: GenerationId,
    steps: list[Step],
    jobs: Sequence[str] = (),
    reports: Sequence[NewReport] = (),
    receipt: NewReceipt | None = None,
) -> Operation:
    return Operation(
        name=name,
        subjects=(generation, frame_cursor(generation), *jobs),
        steps=in_commit_order(steps),
        reports=tuple(reports),
        receipts=() if receipt is None else (receipt,),
    )
