"""What a generation has counted itself: the body of the ``Answer`` to ``Seal``, in msgpack."""

import msgspec


class GenerationTotals(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Counts since the start of the process; an attempt counts from its ``Accepted``."""

    attempts: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
