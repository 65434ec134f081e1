"""Which operations may share a commit, and in what order their statements run there."""

from collections.abc import Iterable
from itertools import islice

from app.storage.operations import Given, Operation, Statement


def shared_commit(waiting: Iterable[Operation], operations_max: int) -> int:
    """How many operations from the front may go into one commit; at least one if any waits.

    Statements of one kind run together, so two operations that touch one subject would change
    order: the second closes the commit.
    """
    changed: set[str] = set()
    read: set[str] = set()
    count = 0
    for operation in islice(waiting, operations_max):
        conflict = (
            not changed.isdisjoint(operation.subjects)
            or not changed.isdisjoint(operation.reads)
            or not read.isdisjoint(operation.subjects)
        )
        if conflict:
            break
        changed.update(operation.subjects)
        read.update(operation.reads)
        count += 1
    return count


def by_statement(operations: Iterable[Operation]) -> list[tuple[Statement, list[Given]]]:
    """Every step's parameters under its statement, in the order of ranks."""
    groups: dict[Statement, list[Given]] = {}
    for operation in operations:
        for step in operation.steps:
            groups.setdefault(step.statement, []).append(step.params)
    return sorted(groups.items(), key=lambda group: group[0].rank)
