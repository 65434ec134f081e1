"""One commit of many operations, on the writer's connection.

The fast way runs each statement once for all operations and compares row counts in sum. Anything
unexpected undoes it all, and the operations are replayed in order, each under its own savepoint,
which tells the one that is void or wrong from its neighbours.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from app.storage.batching import by_statement
from app.storage.driver import Driver
from app.storage.errors import OperationFailed, Trouble, trouble
from app.storage.feed import insert_unplaced, place, publish
from app.storage.operations import COMMITTED, NewReport, Operation, Outcome, Step, Void
from app.storage.receipts import settle
from app.storage.together import change

Result: TypeAlias = Outcome | OperationFailed

_WRONG: Final = (sqlite3.Error, ValueError, OverflowError, TypeError)
"""What a statement raises when a value does not fit: SQLite's own errors and those of binding."""


def _nothing(_driver: Driver, _operations: Sequence[Operation]) -> None:
    pass


Hook: TypeAlias = Callable[[Driver, Sequence[Operation]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHooks:
    """Called in the writer's thread around each commit; for tests and crash points.

    What ``before_begin`` and ``before_commit`` raise acts as if SQLite had raised it there.
    """

    before_begin: Hook = _nothing
    before_commit: Hook = _nothing
    after_commit: Hook = _nothing


class _Unexpected(Exception):
    """A fenced statement did not change the rows it must."""


@dataclass(slots=True)
class CommitCounts:
    """What has been committed since the start."""

    commits: int = 0
    operations: int = 0
    replays: int = 0
    voids: int = 0
    errors: int = 0


class Committer:
    """Commits operations that may share a transaction."""

    def __init__(self, driver: Driver, hooks: CommitHooks, counts: CommitCounts) -> None:
        self._driver = driver
        self._hooks = hooks
        self._counts = counts
        self._unplaced = 0

    def commit(self, operations: Sequence[Operation]) -> list[Result]:
        """One result per operation, in order.

        Raises:
            sqlite3.Error: nothing was written and no single operation is to blame: the disk is
                full, the file is busy or broken.
        """
        results = self._together(operations)
        if results is None:
            self._counts.replays += 1
            results = self._transaction(operations, self._one_by_one)
        self._count(results)
        return results

    def _together(self, operations: Sequence[Operation]) -> list[Result] | None:
        try:
            return self._transaction(operations, self._all_at_once)
        except _Unexpected:
            return None
        except _WRONG as error:
            if _to_blame(error):
                return None
            raise

    def _transaction(
        self,
        operations: Sequence[Operation],
        work: Callable[[Sequence[Operation]], list[Result]],
    ) -> list[Result]:
        try:
            self._hooks.before_begin(self._driver, operations)
            self._driver.execute("BEGIN IMMEDIATE")
            results = work(operations)
            self._hooks.before_commit(self._driver, operations)
            self._driver.execute("COMMIT")
        except BaseException:
            self._driver.rollback()
            raise
        self._hooks.after_commit(self._driver, operations)
        return results

    def _all_at_once(self, operations: Sequence[Operation]) -> list[Result]:
        for statement, params in by_statement(operations):
            rows = list(map(statement.values, params))
            changed = change(self._driver, statement, rows)
            if statement.exact and changed != len(params):
                raise _Unexpected
        publish(self._driver, [report for op in operations for report in self._reports(op)])
        return [COMMITTED] * len(operations)

    def _one_by_one(self, operations: Sequence[Operation]) -> list[Result]:
        self._unplaced = 0
        results = [self._under_savepoint(operation) for operation in operations]
        place(self._driver, self._unplaced)
        return results

    def _under_savepoint(self, operation: Operation) -> Result:
        self._driver.execute("SAVEPOINT operation")
        result = self._alone(operation)
        if result is not COMMITTED:
            self._driver.execute("ROLLBACK TO operation")
        self._driver.execute("RELEASE operation")
        return result

    def _alone(self, operation: Operation) -> Result:
        for step in operation.steps:
            result = self._step(operation, step)
            if result is not COMMITTED:
                return result
        try:
            reports = self._reports(operation)
            insert_unplaced(self._driver, reports, self._unplaced)
        except _WRONG as error:
            return _failed(operation, "report.insert", operation.subjects[0], error)
        self._unplaced += len(reports)
        return COMMITTED

    def _reports(self, operation: Operation) -> list[NewReport]:
        """What the operation reports: as it says, and as the store says by now."""
        if not operation.receipts:
            return list(operation.reports)
        receipts = [settle(self._driver, asked) for asked in operation.receipts]
        return [*operation.reports, *filter(None, receipts)]

    def _step(self, operation: Operation, step: Step) -> Result:
        statement = step.statement
        try:
            values = statement.values(step.params)
            changed = self._driver.execute(statement.numbered, values).rowcount
        except _WRONG as error:
            return _failed(operation, statement.name, step.subject, error)
        if statement.exact and changed != 1:
            return Void(statement.name, step.subject)
        return COMMITTED

    def _count(self, results: Sequence[Result]) -> None:
        counts = self._counts
        counts.commits += 1
        counts.operations += len(results)
        for result in results:
            counts.voids += isinstance(result, Void)
            counts.errors += isinstance(result, OperationFailed)


def _failed(operation: Operation, statement: str, subject: str, error: Exception) -> Result:
    """The operation's own fault as a result; anything else is raised on."""
    if not _to_blame(error):
        raise error
    return OperationFailed(operation.name, statement, subject, str(error))


def _to_blame(error: Exception) -> bool:
    return not isinstance(error, sqlite3.Error) or trouble(error) is Trouble.STATEMENT
