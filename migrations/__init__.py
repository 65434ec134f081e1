"""The schema's history. ``app/storage/schema.py`` runs it at start when a step is pending."""

from typing import Final

HEAD: Final = "0007"
"""The latest revision. Known without alembic, so that a start without a pending step is quick; a
test compares it with what alembic finds."""

ELSEWHERE: Final = {"command": "kind = 'run_job'"}
"""Rows that a revision puts into another table; that it puts all of them there is for its own test.
Of all others a step must leave as many as there were."""
