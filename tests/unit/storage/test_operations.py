import pytest

from app.storage.batching import by_statement, shared_commit
from app.storage.operations import Operation, Rank, Statement, Step

FIRST = Statement("first", Rank.JOB_INSERT, "")
SECOND = Statement("second", Rank.ATTEMPT_INSERT, "")


def make(*subjects: str, reads: tuple[str, ...] = (), steps: tuple[Step, ...] = ()) -> Operation:
    return Operation(name="test", subjects=subjects, reads=reads, steps=steps)


def test_operations_on_different_jobs_share_a_commit() -> None:
    assert shared_commit([make("a"), make("b"), make("c")], 10) == 3


def test_a_second_operation_on_one_job_closes_the_commit() -> None:
    assert shared_commit([make("a"), make("b"), make("a"), make("c")], 10) == 2


def test_two_that_only_read_a_generation_share_a_commit() -> None:
    assert shared_commit([make("a", reads=("g",)), make("b", reads=("g",))], 10) == 2


@pytest.mark.parametrize(
    "pair",
    [[make("a", reads=("g",)), make("g")], [make("g"), make("a", reads=("g",))]],
    ids=["read then changed", "changed then read"],
)
def test_what_one_reads_and_another_changes_never_shares_a_commit(pair: list[Operation]) -> None:
    assert shared_commit(pair, 10) == 1


def test_an_operation_that_names_one_subject_twice_still_goes() -> None:
    assert shared_commit([make("a", "a", reads=("a",))], 10) == 1


def test_a_commit_takes_no_more_than_its_limit() -> None:
    assert shared_commit([make(str(n)) for n in range(10)], 4) == 4


def test_steps_out_of_commit_order_are_refused() -> None:
    with pytest.raises(ValueError, match="commit order"):
        make("a", steps=(Step(SECOND, {}), Step(FIRST, {})))


def test_statements_run_once_for_all_operations_in_the_order_of_ranks() -> None:
    one = make("a", steps=(Step(SECOND, {"n": 1}),))
    two = make("b", steps=(Step(FIRST, {"n": 2}), Step(SECOND, {"n": 3})))
    groups = by_statement([one, two])
    assert groups == [(FIRST, [{"n": 2}]), (SECOND, [{"n": 1}, {"n": 3}])]
