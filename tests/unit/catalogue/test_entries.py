"""Which directories count as models, and what is found where."""

import json
import os
from pathlib import Path

import pytest

from app.catalogue.entries import Catalogue
from app.catalogue.model_dir import NotAModel, read_model_dir
from app.settings import ModelsSettings, Settings, StorageSettings

REVISION = "0123456789abcdef0123456789abcdef01234567"


def make_model(path: Path, shards: int = 1, **config: object) -> Path:
    path.mkdir(parents=True)
    full = {"model_type": "llama", "max_position_embeddings": 2048, **config}
    (path / "config.json").write_text(json.dumps(full))
    (path / "tokenizer.json").write_text("{}")
    if shards == 1:
        (path / "model.safetensors").write_bytes(b"x" * 100)
        return path
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    for name in names:
        (path / name).write_bytes(b"x" * 10)
    index = {"weight_map": {f"t{n}": name for n, name in enumerate(names)}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def make_hub_model(hub: Path, folder: str) -> Path:
    """A repository as the hub's client lays it out: links from the snapshot into the blobs."""
    repository = hub / folder
    real = make_model(repository / "blobs")
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    for file in real.iterdir():
        (snapshot / file.name).symlink_to(os.path.relpath(file, snapshot))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    return snapshot


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(tmp_path / "models", tmp_path / "hub")


def test_no_directories_mean_no_models(catalogue: Catalogue) -> None:
    assert catalogue.list() == []
    assert catalogue.find("x") is None


def test_a_model_of_ours_is_listed_with_its_facts(catalogue: Catalogue) -> None:
    quantization = {"bits": 4, "group_size": 32, "mode": "affine"}
    path = make_model(catalogue.models_dir / "tiny", quantization=quantization)
    (entry,) = catalogue.list()
    assert (entry.id, entry.path, entry.source) == ("tiny", path, "local")
    assert (entry.context_tokens, entry.model_type) == (2048, "llama")
    assert entry.quantization == "4-bit"
    assert entry.bytes == sum(file.stat().st_size for file in path.iterdir())
    assert entry.created.tzinfo is not None
    assert catalogue.find("tiny") == entry


def test_drafts_and_locks_are_not_models(catalogue: Catalogue) -> None:
    make_model(catalogue.models_dir / ".making-tiny-1")
    (catalogue.models_dir / ".lock-tiny").touch()
    assert catalogue.list() == []


def test_a_complete_hub_repository_is_listed_by_its_name(catalogue: Catalogue) -> None:
    snapshot = make_hub_model(catalogue.hub_cache, "models--org--name")
    (entry,) = catalogue.list()
    assert (entry.id, entry.path, entry.source) == ("org/name", snapshot, "hub")
    assert catalogue.find("org/name") == entry


def test_a_hub_repository_with_a_missing_blob_is_not_listed(catalogue: Catalogue) -> None:
    make_hub_model(catalogue.hub_cache, "models--org--name")
    (catalogue.hub_cache / "models--org--name" / "blobs" / "model.safetensors").unlink()
    assert catalogue.list() == []


def test_a_hub_repository_without_a_main_revision_is_not_listed(catalogue: Catalogue) -> None:
    make_hub_model(catalogue.hub_cache, "models--org--name")
    (catalogue.hub_cache / "models--org--name" / "refs" / "main").write_text("../../escape")
    assert catalogue.list() == []


def test_a_model_pulled_later_is_found_and_one_removed_is_gone(catalogue: Catalogue) -> None:
    assert catalogue.find("tiny") is None
    path = make_model(catalogue.models_dir / "tiny")
    assert catalogue.find("tiny") is not None
    (path / "model.safetensors").unlink()
    assert catalogue.find("tiny") is None


def test_a_changed_configuration_is_read_again(catalogue: Catalogue) -> None:
    path = make_model(catalogue.models_dir / "tiny")
    assert catalogue.find("tiny") is not None
    (path / "config.json").write_text('{"model_type": "qwen3", "text_config": {"n_positions": 9}}')
    entry = catalogue.find("tiny")
    assert entry is not None
    assert (entry.model_type, entry.context_tokens) == ("qwen3", 9)


@pytest.mark.parametrize("model_id", ["", ".", "..", "../x", "a/b/c", "/etc", "a\0b", "x" * 300])
def test_an_odd_id_finds_nothing(catalogue: Catalogue, model_id: str) -> None:
    make_model(catalogue.models_dir.parent / "x")
    assert catalogue.find(model_id) is None


def test_a_default_model_named_by_path_is_in_the_catalogue(tmp_path: Path) -> None:
    path = make_model(tmp_path / "elsewhere" / "mine")
    settings = Settings(
        storage=StorageSettings(data_dir=tmp_path / "data"),
        models=ModelsSettings(default=str(path), hub_cache=tmp_path / "hub"),
    )
    (entry,) = Catalogue.of(settings).list()
    assert (entry.id, entry.source) == (str(path), "directory")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", None, "config.json is missing"),
        ("config.json", "{", "config.json is not JSON"),
        ("config.json", "[]", "not a JSON object"),
        ("config.json", "{}", "names no model_type"),
        ("tokenizer.json", None, "no tokenizer.json"),
        ("model-00002-of-00003.safetensors", None, "1 of 3 weight files"),
        ("model-00002-of-00003.safetensors", "", "1 of 3 weight files"),
        ("model.safetensors.index.json", "{}", "lists no weights"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, file: str, content: str | None, said: str) -> None:
    path = make_model(tmp_path / "m", shards=3)
    if content is None:
        (path / file).unlink()
    else:
        (path / file).write_text(content)
    with pytest.raises(NotAModel, match=said):
        read_model_dir(path)


def test_shards_without_an_index_must_all_be_there(tmp_path: Path) -> None:
    path = make_model(tmp_path / "m", shards=3)
    (path / "model.safetensors.index.json").unlink()
    read_model_dir(path)
    (path / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(NotAModel, match="1 of 3"):
        read_model_dir(path)
