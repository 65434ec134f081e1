"""How the next token is drawn.

A draw depends only on (seed, choice, position): ``position`` is the index of the token in its
choice's completion. So a neighbour in the batch, a cache hit, a pre-emption or a resume changes no
token.
"""

from typing import Annotated

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Sampling of one request. Temperature 0 is greedy and ignores the rest.

    Filters apply in the order top_k, top_p, min_p, as OpenAI-compatible servers commonly do, on
    the distribution after temperature. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off.
    """

    seed: Annotated[int, msgspec.Meta(ge=0)]
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 0
    min_p: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0

    @property
    def greedy(self) -> bool:
        """Whether every draw is the most likely token."""
        return self.temperature == 0.0
