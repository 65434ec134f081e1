"""`mlxq models pull` and `rm`: bring a model here, or take one of ours away."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from app.catalogue.default_model import PullFailed, Reporter, pull_default
from app.catalogue.directory_lock import directory_lock
from app.catalogue.entries import Catalogue, ModelEntry, is_name, is_path, is_repository
from app.catalogue.model_dir import NotAModel, read_model_dir
from app.settings import DEFAULT_MODEL

NOT_REACHABLE = 3  # exit status of app.catalogue.hub_snapshot

__all__ = ["PullFailed", "RemoveRefused", "Reporter", "pull", "remove"]


class RemoveRefused(Exception):
    """The model is not ours to delete, or there is none of that id. One line."""


def pull(
    model: str, catalogue: Catalogue, cache_dir: Path, reporter: Reporter, *, copy: bool = False
) -> ModelEntry:
    """Bring a model here and return its entry; one that is here already is left as it is.

    `model` is the default model's id, a Hugging Face repository, or a directory, which is linked
    under its own name (`copy`: copied). Raises PullFailed.
    """
    if model == DEFAULT_MODEL:
        pull_default(catalogue.models_dir / model, cache_dir, reporter)
        model_id = model
    elif is_path(model) or (not is_repository(model) and Path(model).is_dir()):
        model_id = _register(Path(model).expanduser(), catalogue.models_dir, copy=copy)
    elif is_repository(model):
        _fetch_repository(model, catalogue.hub_cache, reporter)
        model_id = model
    elif entry := catalogue.find(model):
        return entry
    else:
        raise PullFailed(
            f"there is no model {model!r} to pull. What works: {DEFAULT_MODEL}; a Hugging Face "
            "repository as org/name; a directory with an mlx-lm model, as ./path or /path"
        )
    entry = catalogue.find(model_id)
    if entry is None:
        raise PullFailed(f"{model_id} was fetched, but it is no model that mlx-lm can load")
    return entry


def remove(model_id: str, catalogue: Catalogue) -> ModelEntry:
    """Delete a model of our own directory; of a linked one only the link. Raises RemoveRefused."""
    entry = catalogue.find(model_id)
    if entry is None:
        raise RemoveRefused(f"there is no model {model_id!r} here; `mlxq models list` shows all")
    if entry.source not in {"default", "local"} or entry.path.parent != catalogue.models_dir:
        raise RemoveRefused(
            f"{model_id} lies in {entry.path}, which is not mlxq's: delete it there yourself"
        )
    with directory_lock(catalogue.models_dir, model_id, lambda: None):
        if entry.path.is_symlink():
            entry.path.unlink()
        else:
            with tempfile.TemporaryDirectory(dir=catalogue.models_dir, prefix=".removing-") as out:
                entry.path.rename(Path(out) / "model")
    return entry


def _register(source: Path, models_dir: Path, *, copy: bool) -> str:
    """Link or copy a directory under its own name, in one rename."""
    source = source.resolve()
    name = source.name
    try:
        read_model_dir(source)
    except NotAModel as error:
        raise PullFailed(f"{source} is not a model that mlx-lm can load: {error}") from error
    if not is_name(name):
        raise PullFailed(f"{name!r} cannot be an id: use letters, digits, '.', '_' and '-'")
    target = models_dir / name
    with directory_lock(models_dir, name, lambda: None):
        if target.is_symlink() and target.resolve() == source and not copy:
            return name
        if target.exists():
            raise PullFailed(f"there is a model {name} already: `mlxq models rm {name}` first")
        with tempfile.TemporaryDirectory(dir=models_dir, prefix=f".making-{name}-") as place:
            made = Path(place) / name
            if copy:
                shutil.copytree(source, made)
            else:
                made.symlink_to(source, target_is_directory=True)
            made.replace(target)
    return name


def _fetch_repository(repository: str, hub_cache: Path, reporter: Reporter) -> None:
    """Let huggingface_hub fetch it, in a process of its own: importing it takes a second."""
    reporter.say(f"{repository}: asking the Hugging Face hub")
    command = [sys.executable, "-P", "-m", "app.catalogue.hub_snapshot", repository, str(hub_cache)]
    quiet = {} if sys.stderr.isatty() else {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, text=True, env={**os.environ, **quiet}
    )
    if done.returncode == 0:
        return
    said = done.stdout.strip() or f"the download ended with status {done.returncode}"
    if done.returncode == NOT_REACHABLE:
        said = f"the Hugging Face hub cannot be reached from here ({said})"
    raise PullFailed(f"{repository}: {said}")
