"""Which deaths of workers are held against a job, and what follows. Pure.

    innocent ──held──▶ suspect, runs alone ──held──▶ failed: worker_crashed
        ▲                      │
        └─────gets further─────┘

A death that the parent did not cause is held against a job it was running only if that attempt got
no further than an earlier one: what always dies at the same place is likely to be the cause, and
what gets on is not. The death of a first attempt is never held. A suspect runs alone, so that the
next death is proof, and nobody else pays for it.

An attempt that goes on starts from the journal, so with its first new token it has got further
than any before it; before that its prefill is compared.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from shared.failures import Failure


class Verdict(StrEnum):
    """What a death means for a job that was running."""

    CLEARED = "cleared"
    ALONE = "alone"
    POISON = "poison"


@dataclass(slots=True)
class Limits:
    """``alone_after`` deaths held make a job run alone, ``failed_after`` more while it does make it
    fail."""

    alone_after: int = 1
    failed_after: int = 1


class Record(msgspec.Struct):
    """A job's record. Of the current attempt: ``tokens`` that it has delivered, ``prefill`` tokens
    of the prompt that it has computed. ``furthest_prefill`` is that of earlier attempts, ``deaths``
    those held in a row; ``alone`` when the job must run alone, until it gets further."""

    deaths: int = 0
    alone: bool = False
    tokens: int = 0
    prefill: int = 0
    furthest_prefill: int = 0

    def begin_attempt(self) -> None:
        """Another attempt starts."""
        if self.prefill > self.furthest_prefill:
            self.furthest_prefill = self.prefill
        self.tokens = self.prefill = 0

    def computed(self, done: int, prompt_tokens: int) -> None:
        """So much of the context is computed; what is replayed behind the prompt counts nothing."""
        self.prefill = max(self.prefill, min(done, prompt_tokens))

    @property
    def got_further(self) -> bool:
        """Whether this attempt has passed every earlier one."""
        return self.tokens > 0 or self.prefill > self.furthest_prefill

    @property
    def needs_solitude(self) -> bool:
        """Whether nothing else may run beside the job now."""
        return self.alone and not self.got_further

    def attempt_over(self) -> None:
        """The attempt has ended without a death: a suspect that got further is none any more."""
        if self.got_further:
            self.deaths, self.alone = 0, False

    def died(self, attempt: int, limits: Limits) -> Verdict:
        """The worker died, of itself, while it held this attempt (from 1)."""
        if attempt <= 1 or self.got_further:
            self.attempt_over()
            return Verdict.CLEARED
        self.deaths += 1
        if self.deaths >= limits.alone_after + limits.failed_after:
            return Verdict.POISON
        self.alone = self.deaths >= limits.alone_after
        return Verdict.ALONE if self.alone else Verdict.CLEARED


def poisoned(deaths: int) -> Failure:
    """Why a job fails that its workers do not survive."""
    times = "once" if deaths == 1 else f"{deaths} times"
    return Failure(
        code="worker_crashed",
        message=f"The worker died {times} without this job getting any further, at last while it"
        " ran alone.",
    )
