"""What `mlxq doctor` says of webhooks."""

from pathlib import Path
from typing import Final

from app.cli.findings import Check

SHOWN_MAX: Final = 20


def check_webhooks(database: Path) -> list[Check]:
    """Endpoints that are sent nothing, and what was given up."""
    from app.storage.webhook_health import endpoints_of

    found = endpoints_of(database)
    if not found:
        return []
    checks: list[Check] = []
    for one in found:
        if one.reason is not None:
            detail = f"{one.id} ({one.url}) is disabled: {one.reason}"
            cure = f"`mlxq webhooks enable {one.id}`, or `mlxq webhooks rm {one.id}`"
            checks.append(Check("webhooks", "problem", detail, cure))
        if one.parked:
            detail = f"{one.parked} events for {one.id} ({one.url}) were given up"
            cure = f"See to its receiver, then `mlxq webhooks replay {one.id} --parked`"
            checks.append(Check("webhooks", "problem", detail, cure))
    waiting = sum(one.waiting for one in found)
    return checks[:SHOWN_MAX] or [
        Check("webhooks", "fine", f"{len(found)} endpoints, {waiting} events wait for another try")
    ]
