"""Twelve faults, each put into a copy of the source, and the suite that must notice.

A suite that does not is too weak. What a fault replaces must be found exactly once, so that a
mutant that no longer fits is told, not passed over.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MACHINE: Final = "tests/reliability/test_store_machine.py"
SIMULATION: Final = "tests/reliability/test_simulation.py::test_every_seed_comes_to_rest_in_order"


@dataclass(frozen=True)
class Edit:
    """One place in one file."""

    file: str
    old: str
    new: str

    def make(self, root: Path) -> None:
        """Put it into this tree.

        Raises:
            AssertionError: its place is not there, or there more than once.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        assert text.count(self.old) == 1, f"{self.file} has no such place any more:\n{self.old}"
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True)
class Mutant:
    """A fault by name, and the suite that kills it."""

    name: str
    killer: str
    edits: tuple[Edit, ...]


_ENDINGS: Final = "app/storage/endings.py"
_FRAMES: Final = "app/storage/frames.py"
_COMMITTING: Final = "app/storage/committing.py"
_INGESTION: Final = "app/services/ingestion.py"
_RUNNING: Final = "\"id = :job AND state = 'running' AND attempt = :attempt\""
_OPEN: Final = '"job = :job AND number = :attempt AND outcome IS NULL"'

MUTANTS: Final = (
    Mutant(
        "no attempt fence",
        MACHINE,
        (
            Edit(_ENDINGS, _RUNNING, "\"id = :job AND state = 'running'\""),
            Edit(_ENDINGS, _OPEN, '"job = :job AND outcome IS NULL"'),
        ),
    ),
    Mutant(
        "a report's id is not derived",
        MACHINE,
        (
            Edit(
                "shared/ids.py",
                "    digest = sha1(_REPORT_NAMESPACE + name, usedforsecurity=False).hexdigest()\n",
                '    digest = __import__("uuid").uuid4().hex + name.decode()\n',
            ),
        ),
    ),
    Mutant(
        "the report outside the ending's transaction",
        MACHINE,
        (
            Edit(
                _COMMITTING,
                "        publish(self._driver, [report for op in operations"
                " for report in self._reports(op)])\n",
                "",
            ),
            Edit(
                _COMMITTING,
                "        self._count(results)\n        return results\n",
                "        self._count(results)\n"
                "        late = [report for op in operations for report in self._reports(op)]\n"
                "        if self._counts.replays == self._replayed:\n"
                "            self._transaction([], lambda _: publish(self._driver, late) or [])\n"
                "        self._replayed = self._counts.replays\n"
                "        return results\n",
            ),
            Edit(
                _COMMITTING,
                "        self._unplaced = 0\n\n    def commit(",
                "        self._unplaced = 0\n        self._replayed = 0\n\n    def commit(",
            ),
        ),
    ),
    Mutant(
        "the frame's cursor in its own transaction",
        SIMULATION,
        (
            Edit(_FRAMES, '        "_answers",\n', '        "cursor",\n        "_answers",\n'),
            Edit(
                _FRAMES,
                "        steps.append(self._step(_CURSOR, {**cursor, **self._totals}))\n",
                '        self.cursor = Operation(name="cursor",\n'
                "            subjects=(frame_cursor(self._generation),),\n"
                "            reads=(self._generation,),\n"
                "            steps=(self._step(_CURSOR, {**cursor, **self._totals}),))\n",
            ),
            Edit(
                _FRAMES,
                "def journal_step(",
                "class Cursor:\n"
                "    lazy, patient = False, True\n"
                "    def __init__(self, frame):\n"
                "        self.build = lambda: frame.cursor\n\n\n"
                "def journal_step(",
            ),
            Edit(
                _INGESTION,
                "            future = self._writer.submit(fold.operation)\n",
                "            future = self._writer.submit(fold.operation)\n"
                "            from app.storage.frames import Cursor\n"
                "            self._writer.submit(Cursor(fold.operation))\n",
            ),
        ),
    ),
    Mutant(
        "Ack before the commit",
        SIMULATION,
        (
            Edit(
                _INGESTION,
                "        worker.credited(frame.credit)\n",
                "        worker.credited(frame.credit)\n"
                "        ack = worker.session.frame_committed(frame.seq)\n"
                "        self._fleet.send(worker, ack.messages)\n",
            ),
        ),
    ),
    Mutant(
        "output shown before its commit",
        SIMULATION,
        (Edit(_INGESTION, "fold.shown.append((live, output))", "_show(live, output)"),),
    ),
    Mutant(
        "a claim without the state check",
        MACHINE,
        (
            Edit(
                "app/storage/jobs.py",
                "\" WHERE id = :job AND state = 'available' AND attempt = :attempt - 1",
                '" WHERE id = :job AND attempt = :attempt - 1',
            ),
        ),
    ),
    Mutant(
        "Cancel sent before its commit",
        SIMULATION,
        (
            Edit(
                "app/services/cancellation.py",
                "        future = self._writer.submit(replace(operation, patient=patient))\n",
                "        worker = self._fleet.get(live.generation)\n"
                "        if worker is not None and live.sent:\n"
                "            self._send(worker, live, command)\n"
                "        future = self._writer.submit(replace(operation, patient=patient))\n",
            ),
        ),
    ),
    Mutant(
        "a frame counts when its number is merely higher",
        MACHINE,
        (
            Edit(_FRAMES, "AND last_seq = :before", "AND last_seq < :seq"),
            Edit(
                "app/dispatch/sessions.py",
                "        if frame.seq > self.received + 1:\n",
                "        if frame.seq > self.received + 1_000_000:\n",
            ),
        ),
    ),
    Mutant(
        "neither trigger nor table holds a final row",
        MACHINE,
        (
            Edit(
                "app/storage/connections.py",
                "        set_for_writing(driver.cursor())\n",
                "        set_for_writing(driver.cursor())\n"
                '        driver.execute("PRAGMA ignore_check_constraints = 1")\n'
                '        driver.execute("DROP TRIGGER IF EXISTS job_final_is_final")\n'
                '        driver.execute("DROP TRIGGER IF EXISTS attempt_end_is_final")\n',
            ),
            Edit(_ENDINGS, _RUNNING, '"id = :job AND attempt = :attempt"'),
            Edit(_ENDINGS, _OPEN, '"job = :job AND number = :attempt"'),
        ),
    ),
    Mutant(
        "the position off by one after a resume",
        SIMULATION,
        (
            Edit(
                "worker/engine/scripted_engine.py",
                "position=len(spec.replayed))",
                "position=len(spec.replayed) + bool(spec.replayed))",
            ),
        ),
    ),
    Mutant(
        "the feed's number outside the lock",
        MACHINE,
        (
            Edit(
                _COMMITTING,
                '            self._driver.execute("BEGIN IMMEDIATE")\n',
                "            count = sum(len(op.reports) + len(op.receipts) for op in operations)\n"
                '            self._driver.execute("UPDATE feed SET last = last + ?", (count,))\n'
                '            self._driver.execute("BEGIN IMMEDIATE")\n',
            ),
            Edit("app/storage/feed.py", "SET last = last + ?", "SET last = last + 0 * ?"),
        ),
    ),
)
