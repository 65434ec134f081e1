"""Which models can be asked for, without reading the disk for every request."""

from app.catalogue.entries import Catalogue, ModelEntry
from app.services.clock import Clock

FOUND_FOR_S = 2.0
"""How long a model that was found counts as found: a removed one is noticed this late."""

KNOWN_MAX = 1_000


class Models:
    """The catalogue, remembered for a moment. Ids that were not found are looked up again."""

    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._found: dict[str, tuple[float, ModelEntry]] = {}

    def find(self, model_id: str) -> ModelEntry | None:
        """The model of exactly this id, or None."""
        now = self._clock.monotonic()
        known = self._found.get(model_id)
        if known is not None and now - known[0] < FOUND_FOR_S:
            return known[1]
        entry = self._catalogue.find(model_id)
        if entry is None:
            self._found.pop(model_id, None)
            return None
        if len(self._found) >= KNOWN_MAX:
            self._found.clear()
        self._found[model_id] = (now, entry)
        return entry

    def list(self) -> list[ModelEntry]:
        """Every model there is, read from the disk now."""
        return self._catalogue.list()
