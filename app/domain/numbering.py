"""How many event numbers a part takes. Pure, and part of a job's history: never changed for a
``render_version`` that is in use."""

from shared.messages import Finish, Part


def shown(part: Part) -> int:
    """One for everything a follower is shown; a choice's ``Finish`` is told by the job's end."""
    return 0 if isinstance(part, Finish) else 1


def numbers(parts: tuple[Part, ...]) -> int:
    """Event numbers that these parts take together."""
    return len(parts) - [type(part) for part in parts].count(Finish)
