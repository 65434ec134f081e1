"""The tables of webhooks: endpoints, the events that are sent, and how each delivery stands."""

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from app.domain.webhooks import DeliveryState, EndpointState
from app.storage.columns import blob, count, metadata, number, one_of, text

webhook_endpoint: Final = Table(
    "webhook_endpoint",
    metadata,
    text("id"),
    text("tenant", null=True),
    text("name"),
    text("url"),
    text("state", default="enabled"),
    text("reason", null=True),
    text("event_types"),
    text("secret"),
    text("old_secret", null=True),
    number("old_secret_until", null=True),
    # What it was sent is known from behind this place in the feed on.
    number("since"),
    number("created_at"),
    number("updated_at"),
    PrimaryKeyConstraint("id"),
    CheckConstraint(one_of("state", tuple(EndpointState)), "state_known"),
    CheckConstraint("(reason IS NOT NULL) = (state = 'disabled')", "disabled_for_a_reason"),
    CheckConstraint("json_valid(event_types)", "event_types_are_json"),
    CheckConstraint("(old_secret IS NULL) = (old_secret_until IS NULL)", "old_secret_ends"),
    CheckConstraint("since >= 0", "since_range"),
    sqlite_strict=True,
)

# Written before anybody is sent it, and never again.
webhook_event: Final = Table(
    "webhook_event",
    metadata,
    text("id"),
    number("seq"),
    text("type"),
    number("created_at"),
    number("checksum"),
    blob("body"),
    PrimaryKeyConstraint("id"),
    CheckConstraint("seq >= 1", "seq_range"),
    sqlite_strict=True,
)
Index("webhook_event_seq", webhook_event.c.seq)

delivery: Final = Table(
    "delivery",
    metadata,
    Column("endpoint", Text, ForeignKey("webhook_endpoint.id", ondelete="CASCADE"), nullable=False),
    Column("event", Text, ForeignKey("webhook_event.id"), nullable=False),
    number("seq"),
    text("state"),
    count("tries"),
    number("first_at"),
    number("next_at", null=True),
    number("ended_at", null=True),
    text("log", default="[]"),
    PrimaryKeyConstraint("endpoint", "event"),
    CheckConstraint(one_of("state", tuple(DeliveryState)), "state_known"),
    CheckConstraint("(ended_at IS NULL) = (state = 'waiting')", "ended_iff_not_waiting"),
    CheckConstraint("(next_at IS NOT NULL) = (state = 'waiting')", "next_iff_waiting"),
    CheckConstraint("seq >= 1 AND tries >= 0", "numbers_range"),
    CheckConstraint("json_valid(log)", "log_is_json"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
Index("delivery_event", delivery.c.event)
Index("delivery_place", delivery.c.endpoint, delivery.c.seq)
Index("delivery_waiting", delivery.c.endpoint, sqlite_where=delivery.c.state == "waiting")
Index("delivery_parked", delivery.c.ended_at, sqlite_where=delivery.c.state == "parked")
