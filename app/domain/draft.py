"""What a door hands to submission: a validated request, and how it wants to be treated."""

import msgspec

from app.domain.job import Durability, JobClass
from shared.requests import JobRequest


class JobDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is well-formed for its surface but not yet admitted.

    ``deadline_s`` counts from submission; None takes the setting's default.
    """

    surface: str
    model: str
    request: JobRequest
    durability: Durability = Durability.ATTACHED
    job_class: JobClass = JobClass.INTERACTIVE
    priority: int = 0
    tenant: str = "default"
    max_attempts: int = 1
    deadline_s: float | None = None
