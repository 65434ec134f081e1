"""Whatever happens to a worker, in whatever order: nothing is admitted outside serving, a stop is
never taken back, a failure is final, and a sealed total never changes."""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.domain.gate import Gate, GateEvent, GateMoved, GateRefused, next_gate
from app.domain.receipts import Rank, Standing, Totals, observe, revised
from shared.totals import GenerationTotals


class GateMachine(RuleBasedStateMachine):
    """One generation: its gate, what it holds, what it has counted, the receipt that stands."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate.LOADING
        self.been = [Gate.LOADING]
        self.running = 0
        self.ever_ready = False
        self.totals = Totals()
        self.standing: Standing | None = None
        self.sealed: Standing | None = None

    @rule(event=st.sampled_from(GateEvent), stale=st.none() | st.sampled_from(Gate))
    def move(self, event: GateEvent, stale: Gate | None) -> None:
        before = self.gate
        try:
            self.gate = next_gate(self.gate, event, stale)
        except (GateMoved, GateRefused):
            assert self.gate is before
        if self.gate is not before:
            assert stale in (None, before)
            self.been.append(self.gate)
        self.ever_ready |= self.gate is Gate.SERVING
        if self.gate is Gate.FAILED:
            self.running = 0

    @rule()
    def admit(self) -> None:
        if self.gate.admits:
            assert self.gate is Gate.SERVING
            self.running += 1

    @precondition(lambda self: self.running)
    @rule(tokens=st.integers(0, 5))
    def serve(self, tokens: int) -> None:
        self.running -= 1
        self.totals = Totals(
            jobs=self.totals.jobs + 1,
            prompt_tokens=self.totals.prompt_tokens + 3,
            completion_tokens=self.totals.completion_tokens + tokens,
        )

    @rule(off=st.integers(0, 1))
    def seal(self, off: int) -> None:
        """Asked for at any time, and given only where nothing is admitted or held any more."""
        if self.gate is not Gate.STOPPING or self.running:
            return
        totals = self.totals
        own = GenerationTotals(totals.jobs, totals.prompt_tokens, 0, totals.completion_tokens + off)
        self._observe(Rank.SEALED, own)

    @rule(rank=st.sampled_from([Rank.CRASH, Rank.SNAPSHOT]))
    def observe(self, rank: Rank) -> None:
        self._observe(rank, None)

    @precondition(lambda self: self.sealed is not None)
    @rule(rank=st.sampled_from(Rank), more=st.integers(1, 5))
    def claim_more(self, rank: Rank, more: int) -> None:
        """Somebody says of a sealed one that it has served more."""
        sums = msgspec.structs.replace(
            self.totals, completion_tokens=self.totals.completion_tokens + more
        )
        own = GenerationTotals(sums.jobs, sums.prompt_tokens, 0, sums.completion_tokens)
        better = revised(self.standing, observe(rank, sums, ever_ready=self.ever_ready, own=own))
        self.standing = better or self.standing

    def _observe(self, rank: Rank, own: GenerationTotals | None) -> None:
        if self.gate not in (Gate.STOPPING, Gate.FAILED):
            return
        seen = observe(rank, self.totals, ever_ready=self.ever_ready, own=own)
        better = revised(self.standing, seen)
        if better is None:
            return
        before = self.standing
        assert better.revision == (1 if before is None else before.revision + 1)
        assert before is None or better.rank >= before.rank
        assert (
            before is None or better.totals == before.totals or better.totals.exceed(before.totals)
        )
        self.standing = better
        if better.rank is Rank.SEALED:
            assert self.sealed is None
            self.sealed = better

    @invariant()
    def a_stop_is_left_for_failure_alone(self) -> None:
        if Gate.STOPPING in self.been:
            rest = self.been[self.been.index(Gate.STOPPING) + 1 :]
            assert rest in ([], [Gate.FAILED])

    @invariant()
    def a_failure_is_final(self) -> None:
        if Gate.FAILED in self.been:
            assert self.been[-1] is Gate.FAILED

    @invariant()
    def a_sealed_total_never_changes(self) -> None:
        assert self.sealed is None or self.standing == self.sealed

    @invariant()
    def what_is_sealed_was_all(self) -> None:
        assert self.sealed is None or self.sealed.totals == self.totals


TestGate = GateMachine.TestCase
