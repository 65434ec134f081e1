"""The step that ties a job to a generation: the attempt's row.

It is also the outbox entry of the command that starts it: ``command`` is that ``RunJob``'s number,
and it is unanswered until the attempt is accepted or over.
"""

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
    insert_where("attempt", ("job", "number", "generation", "claimed_at", "command"), _ADMITS),
    together=True,
)
"""Void when the generation takes no jobs any more."""


def claim_params(claim: Claim, command: CommandId | None, at: int) -> Params:
    """The parameters of everything that makes a claim true; ``at`` is its time as stored."""
    return {
        "job": claim.job,
        "attempt": claim.attempt,
        "number": claim.attempt,
        "generation": claim.generation,
        "claimed_at": at,
        "command": command,
    }


def claim_step(claim: Params, job: JobId) -> Step:
    """The attempt's row. What ``RunJob`` holds is built from the job at every send."""
    return Step(INSERT_ATTEMPT, claim, job)
