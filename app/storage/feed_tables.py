"""The tables of whoever reads the feed: consumers, and receipts that are booked one by one."""

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from app.domain.feed import ConsumerState
from app.storage.columns import count, metadata, number, one_of, text

# What the world was last told of a generation, and what it has acknowledged of that.
receipt: Final = Table(
    "receipt",
    metadata,
    Column("generation", Text, ForeignKey("generation.id", ondelete="CASCADE"), nullable=False),
    text("id"),
    number("revision"),
    number("rank"),
    number("jobs"),
    number("prompt_tokens"),
    number("cached_tokens"),
    number("completion_tokens"),
    number("reasoning_tokens"),
    count("acked_revision"),
    number("acked_at", null=True),
    PrimaryKeyConstraint("generation"),
    UniqueConstraint("id"),
    CheckConstraint("rank BETWEEN 1 AND 3", "rank_known"),
    CheckConstraint("revision >= 1 AND acked_revision BETWEEN 0 AND revision", "revisions_range"),
    CheckConstraint("(acked_at IS NULL) = (acked_revision = 0)", "acked_iff_at"),
    CheckConstraint(
        "jobs >= 0 AND prompt_tokens >= 0 AND cached_tokens >= 0"
        " AND completion_tokens >= 0 AND reasoning_tokens >= 0",
        "totals_range",
    ),
    sqlite_strict=True,
)

consumer: Final = Table(
    "consumer",
    metadata,
    text("name"),
    text("tenant", null=True),
    text("state", default="live"),
    text("parked_reason", null=True),
    number("acked"),
    number("passed"),
    number("created_at"),
    number("seen_at"),
    number("include_attached"),
    text("kinds"),
    text("classes"),
    text("tags"),
    PrimaryKeyConstraint("name"),
    CheckConstraint(one_of("state", tuple(ConsumerState)), "state_known"),
    CheckConstraint("(parked_reason IS NOT NULL) = (state = 'parked')", "parked_for_a_reason"),
    CheckConstraint("acked >= 0 AND passed >= acked", "places_range"),
    CheckConstraint("include_attached IN (0, 1)", "flags"),
    CheckConstraint(
        "json_valid(kinds) AND json_valid(classes) AND json_valid(tags)", "selection_is_json"
    ),
    sqlite_strict=True,
)
Index("consumer_passed", consumer.c.passed, sqlite_where=consumer.c.state == "live")
