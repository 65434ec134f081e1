"""The schema's history. ``app/storage/schema.py`` runs it at start when a step is pending."""

from typing import Final

HEAD: Final = "0006"
"""The latest revision. Known without alembic, so that a start without a pending step is quick; a
test compares it with what alembic finds."""
