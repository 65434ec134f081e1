"""Which models can be asked for, without reading the disk for every request."""

from app.catalogue.entries import Catalogue, ModelEntry
from app.domain.errors import ModelNotFound
from app.services.clock import Clock

FOUND_FOR_S = 2.0
"""How long a model that was found counts as found: a removed one is noticed this late."""

KNOWN_MAX = 1_000

IDS_SHOWN_MAX = 20
"""Model ids named in the refusal of an unknown one."""


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

    def require(self, model_id: str) -> ModelEntry:
        """The model of exactly this id.

        Raises:
            ModelNotFound: there is none; names those that would work.
        """
        entry = self.find(model_id)
        if entry is not None:
            return entry
        ids = [known.id for known in self.list()][:IDS_SHOWN_MAX]
        known = ", ".join(ids) if ids else "none; `mlxq models pull` fetches one"
        raise ModelNotFound(
            f"The model '{model_id[:200]}' does not exist here. Models that would work: {known}.",
            param="model",
        )

    def list(self) -> list[ModelEntry]:
        """Every model there is, read from the disk now."""
        return self._catalogue.list()
