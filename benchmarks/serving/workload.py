"""What is asked, and what is noted of each answer: the same for every way of asking."""

import random
from typing import Final

import msgspec

_WHO: Final = (
    "keeper", "clockmaker", "pilot", "gardener", "sailor", "baker", "librarian", "miner", "singer",
    "weaver", "doctor", "painter", "farmer", "teacher", "smith", "ranger",
)  # fmt: skip
_WHERE: Final = (
    "a quiet harbour", "a snowy village", "an old observatory", "a desert town", "a river island",
    "a mountain station", "a glass factory", "a night train", "a walled garden", "a busy market",
)  # fmt: skip
_WHAT: Final = (
    "a letter without a sender", "a map that changes", "a lost violin", "a broken lighthouse",
    "a stranger with a lantern", "a locked green door", "an unfinished bridge", "a talking fox",
)  # fmt: skip


class Load(msgspec.Struct, frozen=True):
    """One measurement: ``streams`` at once, each asking ``requests`` times for ``tokens``."""

    streams: int
    tokens: int
    requests: int = 1

    @property
    def title(self) -> str:
        """What the tables call it."""
        streams = f"{self.streams} stream{'s' if self.streams > 1 else ''}"
        requests = f"{self.requests} requests of " if self.requests > 1 else ""
        return f"{streams}, {requests}{self.tokens} tokens"


class Chat(msgspec.Struct, frozen=True):
    """A conversation of one question."""

    system: str
    user: str

    def messages(self) -> list[dict[str, str]]:
        """As OpenAI's API takes it."""
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.user},
        ]


class Trace(msgspec.Struct):
    """One request. Times are seconds of one process's monotonic clock.

    ``events`` are the moments at which text came; an ``error`` makes the rest meaningless.
    """

    sent: float = 0.0
    events: list[float] = msgspec.field(default_factory=list[float])
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""
    error: str | None = None


def chats(load: Load, key: str) -> list[list[Chat]]:
    """Per stream the conversations it asks one after the other.

    The same key gives the same ones, so that all sides of a pair get the same; two keys share no
    conversation. Each begins with a number of its own, so that no prefix cache has more of it than
    the template's first words.
    """
    draw = random.Random(f"{key} {load.streams} {load.requests}")
    return [[_chat(draw) for _ in range(load.requests)] for _ in range(load.streams)]


def _chat(draw: random.Random) -> Chat:
    number = draw.randrange(10**7, 10**8)
    system = f"{number} is the number of this story. You write long stories with many details."
    user = (
        f"Write a story of a thousand words about a {draw.choice(_WHO)} and a {draw.choice(_WHO)} "
        f"in {draw.choice(_WHERE)}, who find {draw.choice(_WHAT)}. Begin at once."
    )
    return Chat(system, user)
