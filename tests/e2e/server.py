"""``mlxq serve`` as a subprocess, with real worker processes, on a directory of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.waiting import wait_until

START_S = 60.0


@dataclass
class ServedModel:
    """A directory that stands for a model of the scripted engine."""

    id: str = "scripted"


@dataclass
class RunningServer:
    """One server process and where its files are."""

    process: "subprocess.Popen[str]"
    base: str
    data_dir: Path
    log: Path
    client: httpx.Client = field(repr=False, default_factory=lambda: httpx.Client(timeout=60))

    @property
    def pid(self) -> int:
        return self.process.pid

    def workers(self) -> list[psutil.Process]:
        """Living worker processes of this server, adopted ones included."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            command = process.info["cmdline"] or []
            environ = process.info["environ"] or {}
            if command[-2:] == ["-m", "worker"] and environ.get("SERVER_UNDER_TEST") == str(
                self.data_dir
            ):
                found.append(process)
        return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def worker(self) -> psutil.Process:
        """The one worker, once there is one."""
        wait_until(lambda: len(self.workers()) == 1, timeout=30)
        return self.workers()[0]

    def chat(self, content: str, **fields: Any) -> httpx.Response:
        """One plain chat request."""
        return self.client.post(f"{self.base}/v1/chat/completions", json=body(content, **fields))

    def metric(self, name: str) -> float:
        """The sum over the samples of one metric."""
        text = self.client.get(f"{self.base}/metrics").text
        values = re.findall(rf"^mlxq_{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(map(float, values))

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 60) -> int:
        """Signal the server and wait for its end."""
        self.process.send_signal(number)
        return self.process.wait(timeout)


def body(content: str, **fields: Any) -> dict[str, Any]:
    """A chat request to the scripted model."""
    messages = [{"role": "user", "content": content}]
    return {"model": "scripted", "messages": messages, **fields}


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON events of a stream, ``[DONE]`` as an empty one."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield {} if data == "[DONE]" else json.loads(data)


@contextmanager
def running_server(
    root: Path,
    *,
    script: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
    engine: str = "scripted",
    model: str = "scripted",
    before: "subprocess.Popen[str] | None" = None,
) -> Iterator[RunningServer]:
    """Start a server in ``root``; whatever still lives of it at the end is killed."""
    data_dir = root / "data"
    model_dir = data_dir / "models" / "scripted"
    if engine == "scripted" and not model_dir.exists():
        make_scripted_model(model_dir)
    server = start(root, script or {}, settings or {}, engine, model)
    try:
        yield server
    finally:
        server.client.close()
        _end(server)


def make_scripted_model(path: Path) -> None:
    """What the catalogue takes for a model; the scripted engine reads none of it."""
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"model_type":"llama","max_position_embeddings":4096}')
    (path / "tokenizer.json").write_text("{}")
    (path / "tokenizer_config.json").write_text("{}")
    (path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")


def start(
    root: Path, script: Mapping[str, Any], settings: Mapping[str, str], engine: str, model: str
) -> RunningServer:
    """Start ``mlxq serve`` and wait for the address that it prints."""
    data_dir, log = root / "data", root / "server.log"
    values = {
        "worker.engine": engine,
        "worker.scripted": json.dumps(script),
        "storage.cache_dir": os.environ.get("MLXQ_TEST_CACHE", str(root / "cache")),
        **settings,
    }
    arguments = [sys.executable, "-m", "app.cli.main", "serve", "--port", "0"]
    arguments += ["--data-dir", str(data_dir), "--model", model]
    for key, value in values.items():
        arguments += ["--set", f"{key}={value}"]
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("MLXQ_")},
        "SERVER_UNDER_TEST": str(data_dir),
        "XDG_RUNTIME_DIR": tempfile.gettempdir(),
        "HF_HUB_CACHE": str(root / "hub"),
    }
    with log.open("a") as errors:
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    address = re.search(r"http://\S+", line)
    assert address, f"no address in {line!r}: {log.read_text()[-3000:]}"
    return RunningServer(process, address[0], data_dir, log)


def _end(server: RunningServer) -> None:
    for process in [*server.workers(), server.process]:
        try:
            process.kill()
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    server.process.wait(30)
