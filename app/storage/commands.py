"""Commands to a worker about a job it runs, where nothing else changes with them."""

from datetime import datetime
from typing import Final

from app.storage.encoding import micros
from app.storage.operations import Operation, Params, Rank, Statement, Step
from shared.ids import CommandId, GenerationId, JobId

_PREEMPT: Final = Statement(
    "command.preempt",
    Rank.COMMAND_PREEMPT,
    "INSERT INTO command (id, generation, job, attempt, kind, created_at, params)"
    " SELECT :id, :generation, :job, :attempt, 'preempt', :now, x'' FROM job"
    " WHERE job.id = :job AND job.state = 'running' AND job.attempt = :attempt"
    " AND job.stop_reason IS NULL"
    " AND EXISTS (SELECT 1 FROM attempt WHERE attempt.job = :job AND attempt.number = :attempt"
    " AND attempt.generation = :generation AND attempt.outcome IS NULL)"
    " AND NOT EXISTS (SELECT 1 FROM command WHERE command.job = :job"
    " AND command.attempt = :attempt AND command.kind = 'preempt')",
)


def preempt_job(
    job: JobId, attempt: int, generation: GenerationId, command: CommandId, now: datetime
) -> Operation:
    """The worker is to give this row back: its ``Preempt``, to be sent until it is answered.

    Void at ``command.preempt`` when that attempt is not running on that generation any more, when
    the job is to stop, and when it was asked for already.
    """
    params: Params = {
        "id": command,
        "generation": generation,
        "job": job,
        "attempt": attempt,
        "now": micros(now),
    }
    return Operation(
        name="preempt_job",
        subjects=(job,),
        reads=(generation,),
        steps=(Step(_PREEMPT, params, job),),
    )
