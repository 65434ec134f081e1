"""What a follower of a job is shown, in order. Numbers start at 0 and are contiguous.

``created`` is number 0 of every job; it is known from the job itself and carries nothing else, so
followers start at what comes after it. An ``Output`` takes a number per part that is shown.
"""

import msgspec

from app.domain.job import Ending
from app.domain.numbering import numbers
from shared.messages import Part


class Started(msgspec.Struct, frozen=True, gc=False):
    """A worker accepted the job: the prompt is valid and counted. Shown once per job."""

    seq: int
    prompt_tokens: int
    cached_tokens: int


class Output(msgspec.Struct, frozen=True):
    """Parts of one choice. ``seq`` is the number of the first; ``tokens`` counts the completion
    tokens they came with (parts and tokens need not line up)."""

    seq: int
    choice: int
    parts: tuple[Part, ...]
    tokens: int

    @property
    def last_seq(self) -> int:
        """The number of the last part; one under ``seq`` when nothing is numbered."""
        return self.seq + numbers(self.parts) - 1


class Ended(msgspec.Struct, frozen=True):
    """The job has ended and its row says so. Always last."""

    seq: int
    ending: Ending


FollowedEvent = Started | Output | Ended
