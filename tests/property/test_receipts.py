"""Whatever becomes of worker generations, in whatever order and in whatever company of one commit:
each that is over has one receipt that counts, whose totals are the sums over its attempts, and a
sealed one never changes."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from app.domain.job import Claim, Durability, JobState
from app.domain.receipts import Rank
from app.storage.database import Database
from app.storage.frames import FrameOperation
from app.storage.generations import (
    generation_gone,
    generation_ready,
    insert_generation,
    lose_generation,
    stop_generation,
)
from app.storage.jobs import insert_job
from app.storage.limits import WriterLimits
from app.storage.operations import Committed, NewReceipt, Operation
from app.storage.receipts import write_receipts
from app.storage.verify import verify_file
from shared.ids import CommandId, GenerationId, JobId
from shared.totals import GenerationTotals
from tests.integration.storage.making import NOW, job_id, make_ending, make_job, query

ATTACHED: dict[str, Any] = {"durability": Durability.ATTACHED, "request": None}
PROMPT = 3


@dataclass
class Generation:
    """One worker, as the rules have it."""

    id: GenerationId
    state: str = "ready"
    seq: int = 0
    jobs: int = 0
    tokens: int = 0
    held: dict[int, int] = field(default_factory=dict[int, int])
    sealed: bool = False

    @property
    def own(self) -> GenerationTotals:
        return GenerationTotals(self.jobs, PROMPT * self.jobs, 0, self.tokens)


class ReceiptMachine(RuleBasedStateMachine):
    """Operations gather and are handed over a few at a time, so that commits mix them."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.generations: list[Generation] = []
        self.jobs = 0
        self.gathered: list[Operation] = []
        self.sealed: dict[str, tuple[Any, ...]] = {}

    @initialize()
    def open(self) -> None:
        self.database = self.loop.run_until_complete(self._open())
        self.begin()

    async def _open(self) -> Database:
        limits = WriterLimits(lazy_wait_s=0.001)
        return await Database.open(self.directory, limits=limits, now=lambda: NOW)

    @override
    def teardown(self) -> None:
        self.flush()
        self.loop.run_until_complete(self.database.close())
        self.loop.close()
        shutil.rmtree(self.directory)

    @property
    def now(self) -> Generation:
        return self.generations[-1]

    @precondition(lambda self: self.now.state == "gone" and len(self.generations) < 4)
    @rule()
    def begin(self) -> None:
        number = len(self.generations) + 1
        generation = Generation(GenerationId(f"gen_{number:032x}"))
        self.generations.append(generation)
        epoch = self.database.parent_epoch
        self.gathered += [
            insert_generation(generation.id, "tiny", epoch, Path("log"), NOW),
            generation_ready(generation.id, NOW),
        ]

    @precondition(lambda self: self.now.state == "ready")
    @rule()
    def accept(self) -> None:
        self.jobs += 1
        generation, number = self.now, self.jobs
        claim = Claim(job=job_id(number), attempt=1, generation=generation.id, claimed_at=NOW)
        new = make_job(number, **ATTACHED)
        self.gathered.append(insert_job(new, claim, CommandId(number)))
        generation.held[number] = 0
        generation.jobs += 1
        frame = self._frame()
        frame.accepted(
            job_id(number),
            1,
            now=NOW,
            prompt_tokens=PROMPT,
            cached_tokens=0,
            digest="d",
            fingerprint="f",
        )
        self.gathered.append(frame.build())

    @precondition(lambda self: self.now.held and self.now.state in ("ready", "stopping"))
    @rule(count=st.integers(1, 5), ends=st.booleans())
    def speak(self, count: int, ends: bool) -> None:
        generation = self.now
        number = next(iter(generation.held))
        frame = self._frame()
        frame.tokens(job_id(number), 1, 0, count)
        generation.held[number] += count
        generation.tokens += count
        if ends:
            tokens = generation.held.pop(number)
            ending = _ending(number, tokens, JobState.COMPLETED)
            frame.ended(make_job(number, **ATTACHED), ending, stop_reason=None)
        self.gathered.append(frame.build())

    @precondition(lambda self: self.now.state == "ready")
    @rule()
    def stop(self) -> None:
        self.now.state = "stopping"
        self.gathered.append(stop_generation(self.now.id))

    @precondition(lambda self: self.now.state == "stopping" and not self.now.held)
    @rule(off=st.sampled_from([0, 0, 1]))
    def seal(self, off: int) -> None:
        own = self.now.own
        told = GenerationTotals(
            own.attempts, own.prompt_tokens, own.cached_tokens, own.completion_tokens + off
        )
        frame = self._frame()
        frame.receipt(self._receipt(Rank.SEALED, own=told))
        self.gathered.append(frame.build())
        self.now.sealed |= not off

    @precondition(lambda self: self.now.state == "stopping")
    @rule()
    def force(self) -> None:
        self.gathered.append(write_receipts([self._receipt(Rank.SNAPSHOT)]))

    @precondition(lambda self: self.now.state in ("ready", "stopping"))
    @rule()
    def lose(self) -> None:
        generation = self.now
        endings = [
            (
                make_job(number, **ATTACHED),
                _ending(number, tokens, JobState.CANCELLED, complete=False),
                None,
            )
            for number, tokens in generation.held.items()
        ]
        generation.held.clear()
        generation.state = "lost"
        receipt = self._receipt(Rank.CRASH)
        self.gathered.append(lose_generation(generation.id, NOW, "x", endings, receipt=receipt))

    @precondition(lambda self: self.now.state in ("stopping", "lost") and not self.now.held)
    @rule()
    def die(self) -> None:
        self.now.state = "gone"
        receipt = self._receipt(Rank.CRASH)
        self.gathered.append(generation_gone(self.now.id, NOW, None, 9, "x", receipt))

    @rule()
    def flush(self) -> None:
        self.loop.run_until_complete(self._commit())
        self.gathered.clear()

    async def _commit(self) -> None:
        futures = self.database.writer.submit_many(self.gathered)
        assert [await future for future in futures] == [Committed()] * len(futures)

    @invariant()
    def the_store_agrees(self) -> None:
        if self.gathered or not self.generations:
            return
        for generation in self.generations:
            self._check(generation)
        assert verify_file(self.database.path).violations == []

    def _check(self, generation: Generation) -> None:
        rows = query(
            self.directory,
            "SELECT revision, tombstone, rank, complete, payload FROM report"
            " WHERE subject = ? ORDER BY revision",
            generation.id,
        )
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        assert [row[1] for row in rows] == [1] * (len(rows) - 1) + [0] * bool(rows)
        assert bool(rows) or generation.state not in ("lost", "gone")
        if not rows:
            return
        said = msgspec.json.decode(rows[-1][4])
        if rows[-1][2] == Rank.SEALED or generation.state in ("lost", "gone"):
            assert (said["jobs"], said["usage"]["completion_tokens"]) == (
                generation.jobs,
                generation.tokens,
            )
        assert (rows[-1][2] == Rank.SEALED) == generation.sealed == bool(rows[-1][3])
        if generation.sealed:
            assert self.sealed.setdefault(generation.id, rows[-1]) == rows[-1]

    def _frame(self) -> FrameOperation:
        self.now.seq += 1
        return FrameOperation(self.now.id, self.now.seq)

    def _receipt(self, asked: Rank, own: GenerationTotals | None = None) -> NewReceipt:
        return NewReceipt(generation=self.now.id, asked=asked, now=NOW, own=own)


def _ending(number: int, tokens: int, state: JobState, *, complete: bool = True) -> Any:
    usage = msgspec.structs.replace(
        make_ending().usage,
        prompt_tokens=PROMPT,
        cached_tokens=0,
        completion_tokens=tokens,
        reasoning_tokens=0,
    )
    return make_ending(
        number,
        job=JobId(job_id(number)),
        state=state,
        usage=usage,
        finish_reason="stop" if state is JobState.COMPLETED else None,
        complete=complete,
    )


TestReceipts = ReceiptMachine.TestCase
TestReceipts.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
