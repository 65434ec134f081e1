"""Webhooks: endpoints, the events that are sent to them, deliveries."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ENDPOINT = """
CREATE TABLE webhook_endpoint (
    id TEXT NOT NULL,
    tenant TEXT,
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    state TEXT DEFAULT 'enabled' NOT NULL,
    reason TEXT,
    event_types TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    old_secret_until INTEGER,
    since INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT webhook_endpoint_key PRIMARY KEY (id),
    CONSTRAINT webhook_endpoint_state_known CHECK (state IN ('enabled', 'disabled')),
    CONSTRAINT webhook_endpoint_disabled_for_a_reason CHECK (
        (reason IS NOT NULL) = (state = 'disabled')
    ),
    CONSTRAINT webhook_endpoint_event_types_are_json CHECK (json_valid(event_types)),
    CONSTRAINT webhook_endpoint_old_secret_ends CHECK (
        (old_secret IS NULL) = (old_secret_until IS NULL)
    ),
    CONSTRAINT webhook_endpoint_since_range CHECK (since >= 0)
) STRICT
"""

EVENT = """
CREATE TABLE webhook_event (
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body BLOB NOT NULL,
    CONSTRAINT webhook_event_key PRIMARY KEY (id),
    CONSTRAINT webhook_event_seq_range CHECK (seq >= 1)
) STRICT
"""
IMMUTABLE = """
CREATE TRIGGER webhook_event_is_immutable
BEFORE UPDATE ON webhook_event
BEGIN
    SELECT RAISE(ABORT, 'an event never changes');
END
"""

DELIVERY = """
CREATE TABLE delivery (
    endpoint TEXT NOT NULL,
    event TEXT NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    first_at INTEGER NOT NULL,
    next_at INTEGER,
    ended_at INTEGER,
    log TEXT DEFAULT '[]' NOT NULL,
    CONSTRAINT delivery_key PRIMARY KEY (endpoint, event),
    CONSTRAINT delivery_state_known CHECK (state IN ('waiting', 'delivered', 'parked')),
    CONSTRAINT delivery_ended_iff_not_waiting CHECK ((ended_at IS NULL) = (state = 'waiting')),
    CONSTRAINT delivery_next_iff_waiting CHECK ((next_at IS NOT NULL) = (state = 'waiting')),
    CONSTRAINT delivery_numbers_range CHECK (seq >= 1 AND tries >= 0),
    CONSTRAINT delivery_log_is_json CHECK (json_valid(log)),
    CONSTRAINT delivery_endpoint_reference FOREIGN KEY(endpoint)
        REFERENCES webhook_endpoint (id) ON DELETE CASCADE,
    CONSTRAINT delivery_event_reference FOREIGN KEY(event) REFERENCES webhook_event (id)
) WITHOUT ROWID, STRICT
"""
INDEXES = (
    "CREATE INDEX webhook_event_seq ON webhook_event (seq)",
    "CREATE INDEX delivery_event ON delivery (event)",
    "CREATE INDEX delivery_place ON delivery (endpoint, seq)",
    "CREATE INDEX delivery_waiting ON delivery (endpoint) WHERE state = 'waiting'",
    "CREATE INDEX delivery_parked ON delivery (ended_at) WHERE state = 'parked'",
)


def upgrade() -> None:
    for statement in (ENDPOINT, EVENT, IMMUTABLE, DELIVERY, *INDEXES):
        op.execute(statement)


def downgrade() -> None:
    for table in ("delivery", "webhook_event", "webhook_endpoint"):
        op.execute(f"DROP TABLE {table}")
    op.execute("DELETE FROM consumer WHERE name LIKE 'webhook:%'")
