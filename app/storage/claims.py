"""Steps that tie a job to a generation: the attempt's row and the command that starts it."""

from typing import Final

from app.domain.job import Claim
from app.storage.operations import Params, Rank, Statement, Step
from app.storage.sql import insert_where
from shared.ids import CommandId, JobId

_ADMITS: Final = "EXISTS (SELECT 1 FROM generation WHERE id = :generation AND gate = 'serving')"
"""Only an open gate admits: checked here again, whatever the dispatcher thinks."""

INSERT_ATTEMPT: Final = Statement(
    "attempt.insert",
    Rank.ATTEMPT_INSERT,
    insert_where("attempt", ("job", "number", "generation", "claimed_at"), _ADMITS),
    together=True,
)
"""Void when the generation takes no jobs any more."""

INSERT_COMMAND: Final = Statement(
    "command.insert",
    Rank.COMMAND_INSERT,
    insert_where(
        "command", ("id", "generation", "job", "attempt", "kind", "created_at", "params"), _ADMITS
    ),
    together=True,
)


def claim_params(claim: Claim, command: CommandId | None, at: int) -> Params:
    """The parameters of everything that makes a claim true; ``at`` is its time as stored."""
    return {
        "job": claim.job,
        "attempt": claim.attempt,
        "number": claim.attempt,
        "generation": claim.generation,
        "claimed_at": at,
        "id": command,
        "kind": "run_job",
        "created_at": at,
        "params": b"",
    }


def claim_steps(claim: Params, job: JobId) -> list[Step]:
    """The attempt's row and, unless the worker is told otherwise, its ``RunJob`` command. Such a
    command has no body: it is built from the job at every send."""
    steps = [Step(INSERT_ATTEMPT, claim, job)]
    if claim["id"] is not None:
        steps.append(Step(INSERT_COMMAND, claim, job))
    return steps
