"""Consumers of the feed; receipts of generations; how much of the feed is kept."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NEW_FEED = """
CREATE TABLE feed_new (
    id INTEGER NOT NULL,
    last INTEGER DEFAULT 0 NOT NULL,
    pruned INTEGER DEFAULT 0 NOT NULL,
    bytes INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT feed_key PRIMARY KEY (id),
    CONSTRAINT feed_one_row CHECK (id = 1),
    CONSTRAINT feed_numbers_range CHECK (pruned >= 0 AND last >= pruned AND bytes >= 0)
) STRICT
"""
OLD_FEED = """
CREATE TABLE feed_old (
    id INTEGER NOT NULL,
    last INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT feed_key PRIMARY KEY (id),
    CONSTRAINT feed_one_row CHECK (id = 1),
    CONSTRAINT feed_last_range CHECK (last >= 0)
) STRICT
"""
FILL_FEED = """
INSERT INTO feed_new (id, last, pruned, bytes)
SELECT id, last,
    coalesce((SELECT min(seq) FROM report), last + 1) - 1,
    coalesce((SELECT sum(length(payload)) FROM report), 0)
FROM feed
"""

RECEIPT = """
CREATE TABLE receipt (
    generation TEXT NOT NULL,
    id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    acked_revision INTEGER DEFAULT 0 NOT NULL,
    acked_at INTEGER,
    CONSTRAINT receipt_key PRIMARY KEY (generation),
    CONSTRAINT receipt_id_unique UNIQUE (id),
    CONSTRAINT receipt_rank_known CHECK (rank BETWEEN 1 AND 3),
    CONSTRAINT receipt_revisions_range CHECK (
        revision >= 1 AND acked_revision BETWEEN 0 AND revision
    ),
    CONSTRAINT receipt_acked_iff_at CHECK ((acked_at IS NULL) = (acked_revision = 0)),
    CONSTRAINT receipt_totals_range CHECK (
        jobs >= 0
        AND prompt_tokens >= 0
        AND cached_tokens >= 0
        AND completion_tokens >= 0
        AND reasoning_tokens >= 0
    ),
    CONSTRAINT receipt_generation_reference FOREIGN KEY(generation)
        REFERENCES generation (id) ON DELETE CASCADE
) STRICT
"""
SEALED = """
CREATE TRIGGER receipt_sealed_is_final
BEFORE UPDATE OF
    revision, rank, jobs, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens
ON receipt
WHEN OLD.rank = 3
BEGIN
    SELECT RAISE(ABORT, 'a sealed receipt never changes');
END
"""

CONSUMER = """
CREATE TABLE consumer (
    name TEXT NOT NULL,
    tenant TEXT,
    state TEXT DEFAULT 'live' NOT NULL,
    parked_reason TEXT,
    acked INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    include_attached INTEGER NOT NULL,
    kinds TEXT NOT NULL,
    classes TEXT NOT NULL,
    tags TEXT NOT NULL,
    CONSTRAINT consumer_key PRIMARY KEY (name),
    CONSTRAINT consumer_state_known CHECK (state IN ('live', 'parked')),
    CONSTRAINT consumer_parked_for_a_reason CHECK (
        (parked_reason IS NOT NULL) = (state = 'parked')
    ),
    CONSTRAINT consumer_places_range CHECK (acked >= 0 AND passed >= acked),
    CONSTRAINT consumer_flags CHECK (include_attached IN (0, 1)),
    CONSTRAINT consumer_selection_is_json CHECK (
        json_valid(kinds) AND json_valid(classes) AND json_valid(tags)
    )
) STRICT
"""


def upgrade() -> None:
    _replace_feed("feed_new", NEW_FEED, FILL_FEED)
    op.execute(RECEIPT)
    op.execute(SEALED)
    op.execute(CONSUMER)
    op.execute("CREATE INDEX consumer_passed ON consumer (passed) WHERE state = 'live'")


def downgrade() -> None:
    op.execute("DROP TABLE consumer")
    op.execute("DROP TABLE receipt")
    _replace_feed("feed_old", OLD_FEED, "INSERT INTO feed_old (id, last) SELECT id, last FROM feed")


def _replace_feed(copy: str, create: str, fill: str) -> None:
    op.execute(create)
    op.execute(fill)
    op.execute("DROP TABLE feed")
    op.execute(f"ALTER TABLE {copy} RENAME TO feed")
