"""The loads that are disturbed: eight jobs on each engine."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.durable.disturbing import STREAMS, Asked, Load, undisturbed
from tests.durable.margins import CLEAR, Margins
from tests.durable.place import Place
from tests.e2e.server import site_in
from tests.models import make_tiny_llama

SCRIPTED_TOKENS: Final = 60
SCRIPTED_STEP_S: Final = 0.02
TINY_TOKENS: Final = 240
TINY_TOKENS_LEAST: Final = 100
TEMPERATURE: Final = 0.8

Loaded = tuple[Place, Load]


@contextmanager
def scripted_load(root: Path, cache_dir: Path) -> Generator[Loaded]:
    """On the scripted engine, whose words have characters of several tokens."""
    with site_in(root, cache_dir) as site:
        place = Place(site, {"step_s": SCRIPTED_STEP_S})
        place.start()
        asked = [Asked(f"job {n} [[tokens={SCRIPTED_TOKENS}]]", n) for n in range(STREAMS)]
        yield place, undisturbed(place, asked)


@contextmanager
def tiny_load(root: Path, cache_dir: Path) -> Generator[Loaded]:
    """On a tiny MLX model in float32, sampled, with seeds whose draws are all clear."""
    with site_in(root, cache_dir) as site:
        path = make_tiny_llama(site.data_dir / "models" / "tiny")
        place = Place(site, settings={"worker.dtype": "float32"}, engine="mlx", model="tiny")
        place.start()
        body = {"max_tokens": TINY_TOKENS, "temperature": TEMPERATURE}
        asked = [Asked(f"Tell me about {n}.", n, body) for n in range(2 * STREAMS)]
        yield place, _clear(undisturbed(place, asked), path)


def _clear(load: Load, path: Path) -> Load:
    """The first eight that are long and clear."""
    margins = Margins(path)
    chosen = [
        (asked, said)
        for asked, said in zip(load.asked, load.said, strict=True)
        if len(said.tokens) >= TINY_TOKENS_LEAST
        and margins.least(asked.content, asked.seed, TEMPERATURE, said.tokens) > CLEAR
    ]
    margins.close()
    assert len(chosen) >= STREAMS, "take more seeds"
    return Load(*zip(*chosen[:STREAMS], strict=True))
