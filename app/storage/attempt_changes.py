"""What one frame does to one attempt and its job: one statement for each of the two rows.

A frame may accept an attempt, count its tokens, journal them and end it. Each row is rewritten once
for all of that: SQLite pays for a row that changes, its CHECKs and its triggers each time, whatever
changes. There is one fixed text for each company in which changes come.
"""

from functools import cache
from typing import Final, Literal

import msgspec

from app.storage.endings import (
    DROP_COMMANDS,
    END_ATTEMPT_SET,
    END_RUNNING_SET,
    END_RUNNING_WHERE,
    FINAL_SET,
    GIVE_BACK_SET,
    GIVE_BACK_WHERE,
    OPEN_ATTEMPT_WHERE,
    RUNNING_WHERE,
)
from app.storage.operations import Params, Rank, Statement, Step, Value
from shared.ids import JobId

AttemptPart = Literal["accept", "progress", "tokens", "end"]
JobPart = Literal["accept", "events", "end", "give_back"]

_TOKENS_SET: Final = (
    "delivered_tokens = delivered_tokens + :count,"
    " choice_counts = json_set(choice_counts, :path,"
    " coalesce(json_extract(choice_counts, :path), 0) + :count)"
)
_ATTEMPT_SETS: Final[dict[AttemptPart, str]] = {
    "accept": "accepted_at = :accepted_at, prompt_tokens = :attempt_prompt,"
    " cached_tokens = :attempt_cached, replayed_tokens = :replayed",
    "progress": "prefill_tokens = max(prefill_tokens, :done)",
    "tokens": _TOKENS_SET,
    "end": END_ATTEMPT_SET,
}
_ATTEMPT_RANKS: Final[dict[AttemptPart, Rank]] = {
    "accept": Rank.ATTEMPT_ACCEPT,
    "progress": Rank.ATTEMPT_PROGRESS,
    "tokens": Rank.ATTEMPT_TOKENS,
    "end": Rank.ATTEMPT_END,
}
_JOB_RANKS: Final[dict[JobPart, Rank]] = {
    "accept": Rank.JOB_ACCEPT,
    "events": Rank.JOB_EVENTS,
    "end": Rank.JOB_END,
    "give_back": Rank.JOB_GIVE_BACK,
}

_FIRST_ACCEPTED_SET: Final = (
    "prompt_digest = coalesce(prompt_digest, :digest),"
    " fingerprint = coalesce(fingerprint, :fingerprint),"
    " started_at = coalesce(started_at, :accepted_at)"
)
_FIRST_PROMPT_SET: Final = (
    "prompt_tokens = iif(started_at IS NULL, :attempt_prompt, prompt_tokens),"
    " cached_tokens = iif(started_at IS NULL, :attempt_cached, cached_tokens)"
)
"""Only the first attempt that is accepted sets the prompt's counts; an ending has them itself."""

_ACCEPTED_EVENTS: Final = "events + (started_at IS NULL)"
"""Only the first attempt that is accepted takes an event number."""

_MORE_TOKENS: Final = Statement(
    "attempt.tokens",
    Rank.ATTEMPT_TOKENS,
    f"UPDATE attempt SET {_TOKENS_SET} WHERE {OPEN_ATTEMPT_WHERE}",  # noqa: S608 - our own
)


class AttemptChange(msgspec.Struct, eq=False):
    """Gathers what happens to one attempt. ``values`` are the parameters of both statements;
    ``commanded`` unless it is known that no command about it is left when it is over."""

    job: JobId
    values: dict[str, Value]
    accepted: bool = False
    done: int = 0
    counts: dict[int, int] = {}
    journaled: bool = False
    commanded: bool = True
    over: Literal["end", "give_back"] | None = None
    followed: list[Step] = []

    def events(self, first: int, following: int) -> None:
        """Journal rows show events ``first`` to ``following`` - 1; those of one frame join."""
        if not self.journaled:
            self.journaled = True
            self.values["first"] = first
        elif self.values["next"] != first:
            raise ValueError(f"{self.job}: event {first} does not follow {self.values['next']} - 1")
        self.values["next"] = following

    def steps(self) -> list[Step]:
        """Both rows' statements, and what goes with the attempt's end."""
        steps = [*self._attempt(), *self._job()]
        if len(self.counts) > 1:
            steps += self._more_tokens()
        if self.over is not None:
            steps += self.followed
            if self.commanded:
                steps.append(Step(DROP_COMMANDS, self.values, self.job))
        return steps

    def _more_tokens(self) -> list[Step]:
        """Tokens of a second choice and further ones: a row each, which is rare."""
        further = list(self.counts.items())[1:]
        return [Step(_MORE_TOKENS, self._counted(*of), self.job) for of in further]

    def _attempt(self) -> list[Step]:
        parts: list[AttemptPart] = []
        if self.accepted:
            parts.append("accept")
        if self.done:
            parts.append("progress")
            self.values["done"] = self.done
        if self.counts:
            parts.append("tokens")
            choice, count = next(iter(self.counts.items()))
            self.values["path"], self.values["count"] = _path(choice), count
        if self.over is not None:
            parts.append("end")
        return [Step(_attempt_statement(tuple(parts)), self.values, self.job)] if parts else []

    def _job(self) -> list[Step]:
        parts: list[JobPart] = []
        if self.accepted:
            parts.append("accept")
        if self.journaled:
            parts.append("events")
        if self.over is not None:
            parts.append(self.over)
        return [Step(_job_statement(tuple(parts)), self.values, self.job)] if parts else []

    def _counted(self, choice: int, count: int) -> Params:
        return {**self.values, "path": _path(choice), "count": count}


@cache
def _path(choice: int) -> str:
    return f'$."{choice}"'


@cache
def _attempt_statement(parts: tuple[AttemptPart, ...]) -> Statement:
    sets = ", ".join(_ATTEMPT_SETS[part] for part in parts)
    once = " AND accepted_at IS NULL" if "accept" in parts else ""
    return Statement(
        f"attempt.{'+'.join(parts)}",
        _ATTEMPT_RANKS[parts[-1]],
        f"UPDATE attempt SET {sets} WHERE {OPEN_ATTEMPT_WHERE}{once}",  # noqa: S608 - our own
        together=True,
    )


@cache
def _job_statement(parts: tuple[JobPart, ...]) -> Statement:
    sets, conditions = list[str](), [RUNNING_WHERE]
    events = "events"
    if "accept" in parts:
        sets.append(_FIRST_ACCEPTED_SET)
        events = _ACCEPTED_EVENTS
        if "end" not in parts:
            sets.append(_FIRST_PROMPT_SET)
    if "events" in parts:
        conditions.append(f"{events} = :first")
        events = ":next"
    if "end" in parts:
        sets += (FINAL_SET, END_RUNNING_SET)
        conditions.append(END_RUNNING_WHERE)
        events = f"{events} + 1"
    if "give_back" in parts:
        sets.append(GIVE_BACK_SET)
        conditions.append(GIVE_BACK_WHERE)
    if events != "events":
        sets.append(f"events = {events}")
    return Statement(
        f"job.{'+'.join(parts)}",
        _JOB_RANKS[parts[-1]],
        f"UPDATE job SET {', '.join(sets)} WHERE {' AND '.join(conditions)}",  # noqa: S608
        together=True,
    )
