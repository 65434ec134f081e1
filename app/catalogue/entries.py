"""Which models are on this machine.

Three places are looked at, and each look reads the disk again, so that a model pulled a second ago
is found; only what was parsed is kept, for as long as the files are unchanged:

- our own directory, `<data_dir>/models/<id>`: what `mlxq models pull` made (a directory or a link);
- the Hugging Face hub cache: repositories as `org/name`, at their `main` revision, when complete;
- directories that the settings name by path.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from app.catalogue.model_dir import ModelFacts, NotAModel, read_model_dir
from app.settings import DEFAULT_MODEL, Settings

Source = Literal["default", "local", "hub", "directory"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{40}")

Fingerprint = tuple[tuple[str, int, int], ...]


class ModelEntry(Struct, frozen=True, kw_only=True):
    """One model that a worker can load.

    `bytes` is the size of its files; `created` is when its configuration was written; `source` says
    who owns the directory: only `default` and `local` are ours to delete.
    """

    id: str
    path: Path
    source: Source
    bytes: int
    context_tokens: int | None
    model_type: str
    quantization: str | None
    created: datetime


class Catalogue:
    """The models on disk. Reads a few small files per call; never loads weights."""

    def __init__(self, models_dir: Path, hub_cache: Path, directories: Iterable[Path] = ()) -> None:
        self.models_dir = models_dir
        self.hub_cache = hub_cache
        self._directories = tuple(directories)
        self._known: dict[Path, tuple[Fingerprint, ModelFacts | None]] = {}

    @classmethod
    def of(cls, settings: Settings) -> "Catalogue":
        """The catalogue of these settings; a default model given as a path is in it too."""
        named = settings.models.default
        directories = [Path(named).expanduser()] if is_path(named) else []
        return cls(settings.models_dir, settings.models.hub_cache, directories)

    def list(self) -> list[ModelEntry]:
        """Every complete model, ours first, then by id. An id found twice is listed once."""
        found: dict[str, ModelEntry] = {}
        for model_id, path, source in self._candidates():
            entry = self._entry(model_id, path, source)
            if entry is not None:
                found.setdefault(model_id, entry)
        return list(found.values())

    def find(self, model_id: str) -> ModelEntry | None:
        """The model of exactly this id, or None when it is not here or not complete."""
        for directory in self._directories:
            if model_id == str(directory):
                return self._entry(model_id, directory, "directory")
        if is_name(model_id):
            entry = self._entry(model_id, self.models_dir / model_id, _own_source(model_id))
            if entry is not None:
                return entry
        if is_name(model_id) or is_repository(model_id):
            snapshot = self._snapshot("models--" + model_id.replace("/", "--"))
            return self._entry(model_id, snapshot, "hub") if snapshot else None
        return None

    def _candidates(self) -> Iterator[tuple[str, Path, Source]]:
        for path in _children(self.models_dir):
            if is_name(path.name):
                yield path.name, path, _own_source(path.name)
        for path in _children(self.hub_cache):
            if not path.name.startswith("models--"):
                continue
            if snapshot := self._snapshot(path.name):
                model_id = path.name.removeprefix("models--").replace("--", "/", 1)
                yield model_id, snapshot, "hub"
        for directory in self._directories:
            yield str(directory), directory, "directory"

    def _snapshot(self, folder: str) -> Path | None:
        """The directory of a cached repository's main revision, if that was ever fetched."""
        try:
            revision = (self.hub_cache / folder / "refs" / "main").read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if not _REVISION.fullmatch(revision):
            return None
        return self.hub_cache / folder / "snapshots" / revision

    def _entry(self, model_id: str, path: Path, source: Source) -> ModelEntry | None:
        fingerprint = _fingerprint(path)
        facts = self._facts(path, fingerprint)
        if facts is None:
            return None
        sizes = {name: size for name, size, _ in fingerprint}
        times = {name: time for name, _, time in fingerprint}
        return ModelEntry(
            id=model_id,
            path=path,
            source=source,
            bytes=sum(sizes.values()),
            context_tokens=facts.context_tokens,
            model_type=facts.model_type,
            quantization=facts.quantization,
            created=datetime.fromtimestamp(times["config.json"] // 1_000_000_000, UTC),
        )

    def _facts(self, path: Path, fingerprint: Fingerprint) -> ModelFacts | None:
        """What is known of this directory, read again only when a file in it changed."""
        kept = self._known.get(path)
        if kept is not None and kept[0] == fingerprint:
            return kept[1]
        try:
            facts = read_model_dir(path) if fingerprint else None
        except NotAModel:
            facts = None
        if fingerprint:
            self._known[path] = (fingerprint, facts)
        else:
            self._known.pop(path, None)
        return facts


def is_name(model_id: str) -> bool:
    """Whether this can be the id of a model in our own directory."""
    return _NAME.fullmatch(model_id) is not None


def is_repository(model_id: str) -> bool:
    """Whether this looks like `org/name`."""
    return _REPOSITORY.fullmatch(model_id) is not None and "--" not in model_id


def is_path(model_id: str) -> bool:
    """Whether this names a directory: it begins with `/`, `./`, `../` or `~`."""
    return model_id.startswith(("/", "./", "../", "~"))


def _own_source(name: str) -> Source:
    return "default" if name == DEFAULT_MODEL else "local"


def _children(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _fingerprint(path: Path) -> Fingerprint:
    """Name, size and time of each file, links followed; empty when it is no directory."""
    found: list[tuple[str, int, int]] = []
    for file in _children(path):
        try:
            stat = file.stat()
        except OSError:
            continue  # a link into the hub cache whose blob is gone: not there
        if file.is_file():
            found.append((file.name, stat.st_size, stat.st_mtime_ns))
    return tuple(found)
