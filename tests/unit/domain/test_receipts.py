import pytest

from app.domain.receipts import Grounds, Rank, Standing, Totals, observe, revised
from shared.totals import GenerationTotals

TOTALS = Totals(jobs=2, prompt_tokens=10, cached_tokens=3, completion_tokens=7)
MORE = Totals(jobs=2, prompt_tokens=10, cached_tokens=3, completion_tokens=8)
OWN = GenerationTotals(2, 10, 3, 7)


@pytest.mark.parametrize(
    ("asked", "ready", "own", "rank", "grounds", "complete"),
    [
        (Rank.SEALED, True, OWN, Rank.SEALED, Grounds.STOPPED, True),
        (Rank.SEALED, True, GenerationTotals(2, 10, 3, 8), Rank.SNAPSHOT, "totals_differ", False),
        (Rank.SEALED, True, None, Rank.SNAPSHOT, Grounds.TOTALS_DIFFER, False),
        (Rank.SNAPSHOT, True, None, Rank.SNAPSHOT, Grounds.FORCED, False),
        (Rank.CRASH, True, None, Rank.CRASH, Grounds.WORKER_LOST, False),
        (Rank.CRASH, True, OWN, Rank.CRASH, Grounds.WORKER_LOST, False),
        (Rank.SEALED, False, None, Rank.SEALED, Grounds.NEVER_READY, True),
        (Rank.CRASH, False, None, Rank.CRASH, Grounds.NEVER_READY, True),
    ],
)
def test_a_receipt_ranks_by_what_it_rests_on(
    asked: Rank,
    ready: bool,
    own: GenerationTotals | None,
    rank: Rank,
    grounds: str,
    complete: bool,
) -> None:
    seen = observe(asked, TOTALS, ever_ready=ready, own=own)
    assert (seen.rank, seen.grounds, seen.complete) == (rank, grounds, complete)
    assert seen.totals == TOTALS


def standing(rank: Rank, totals: Totals = TOTALS, revision: int = 1) -> Standing:
    return Standing(revision=revision, rank=rank, totals=totals)


@pytest.mark.parametrize(
    ("before", "asked", "totals", "after"),
    [
        (None, Rank.CRASH, TOTALS, standing(Rank.CRASH)),
        (standing(Rank.CRASH), Rank.CRASH, TOTALS, None),
        (standing(Rank.CRASH), Rank.CRASH, MORE, standing(Rank.CRASH, MORE, 2)),
        (standing(Rank.CRASH), Rank.SNAPSHOT, TOTALS, standing(Rank.SNAPSHOT, TOTALS, 2)),
        (standing(Rank.SNAPSHOT), Rank.CRASH, TOTALS, None),
        (standing(Rank.SNAPSHOT), Rank.CRASH, MORE, standing(Rank.SNAPSHOT, MORE, 2)),
        (standing(Rank.CRASH, MORE), Rank.CRASH, TOTALS, None),
        (standing(Rank.SEALED), Rank.CRASH, MORE, None),
        (standing(Rank.SEALED), Rank.SNAPSHOT, MORE, None),
    ],
)
def test_only_a_better_receipt_replaces_one(
    before: Standing | None, asked: Rank, totals: Totals, after: Standing | None
) -> None:
    seen = observe(asked, totals, ever_ready=True)
    assert revised(before, seen) == after


def test_a_seal_replaces_any_other_and_nothing_replaces_it() -> None:
    sealed = observe(Rank.SEALED, TOTALS, ever_ready=True, own=OWN)
    for rank in (Rank.CRASH, Rank.SNAPSHOT):
        assert revised(standing(rank), sealed) == standing(Rank.SEALED, TOTALS, 2)
    assert revised(standing(Rank.SEALED), sealed) is None
