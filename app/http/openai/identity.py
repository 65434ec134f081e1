"""What every object and chunk of one completion has in common."""

import msgspec

from app.http.ports import Ticket
from shared.ids import id_body


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The id, time and model that an answer carries, and the tier if one was asked for."""

    id: str
    created: int
    model: str
    service_tier: str | None = None


def chat_identity(ticket: Ticket, *, tier_wanted: bool) -> Identity:
    """The identity of a chat completion: its id is derived from its job's."""
    return Identity(
        id=f"chatcmpl-{id_body(ticket.job_id)}",
        created=int(ticket.created_at.timestamp()),
        model=ticket.model,
        # There is one tier, so that is the one used, whichever was asked for.
        service_tier="default" if tier_wanted else None,
    )
