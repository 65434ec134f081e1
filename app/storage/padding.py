"""How the text of a job that is kept for its own time is laid out, so that none of it stays behind.

SQLite overwrites what is deleted (``secure_delete``), but not the copies that its B-tree leaves in
the unused part of a page when it moves a row to another one. It only ever moves the front of a row,
as much as fits its page; the rest lies on pages of its own, which are overwritten when the row
goes. So such a row has a pad in front of its text that fills the front: no copy is ever made of
more than the pad. It costs a page or two a row, and is only spent on jobs with a ``keep_ms``.
"""

from typing import Final

PAGE_BYTES: Final = 4096
JOB_PAD_BYTES: Final = 4096
"""More than the 4,061 bytes that a row of a table has on its own page at most."""
CHUNK_PAD_BYTES: Final = 1024
"""More than the 1,002 bytes that a row of a table without row ids has there."""
