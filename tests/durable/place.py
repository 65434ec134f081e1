"""A server that may die at any moment, and what is asked of it meanwhile."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import psutil

from tests.durable.forking import Birth, ForkedProcess, fork
from tests.e2e.server import RunningServer, Site
from tests.e2e.store import Row, Store
from tests.waiting import wait_until

PATIENT: Final = {
    "worker.restart_limit": 1_000,
    "worker.restart_window_s": 1,
}
"""Settings under which any number of deaths is followed by a start."""

AT_ONCE: Final = "set app.domain.restart:EARLY_DEATH_DELAY_S 0"
"""So that the next worker is not waited for either."""

SLACK_S: Final = 40.0
"""How long something may take on a busy machine that should take no time."""

_TOKENS: Final = msgspec.msgpack.Decoder(list[int])


class Place:
    """A site and its one server, which is killed and started again.

    ``up`` is set while a server is expected to answer: who follows a job waits for it.
    """

    def __init__(
        self,
        site: Site,
        script: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        engine: str = "scripted",
        model: str = "scripted",
    ) -> None:
        self.site = site
        self.script = dict(script or {})
        self.settings = {**PATIENT, **(settings or {})}
        self.engine = engine
        self.model = model
        self.up = threading.Event()
        self.server: RunningServer

    @property
    def store(self) -> Store:
        return self.site.store

    # --- its life ------------------------------------------------------------------------------

    def start(self, *sabotage: str) -> RunningServer:
        """Start a server; ``sabotage`` is what goes wrong in it."""
        site = self.site
        if self.engine == "scripted":
            site.add_scripted_model(self.model)
        said = site.root / f"said-{len(site.servers)}"
        process = fork(self._birth(said, sabotage))
        address = wait_for_address(process, said, site.log)
        self.server = RunningServer(cast("Any", process), site, address, self.model)
        site.servers.append(self.server)
        self.up.set()
        return self.server

    def _birth(self, said: Path, sabotage: Sequence[str]) -> Birth:
        values = {
            "server.port": 0,
            "storage.data_dir": self.site.data_dir,
            "storage.cache_dir": self.site.cache_dir,
            "models.hub_cache": self.site.root / "hub",
            "models.default": self.model,
            "worker.engine": self.engine,
            "worker.scripted": json.dumps(self.script),
            "worker.heartbeat_interval_s": 0.2,
            **self.settings,
        }
        sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return Birth(
            arguments=["serve", *sets],
            environment=self.site._environment(),
            output=str(said),
            errors=str(self.site.log),
            exit_code=str(said.with_suffix(".exit")),
            sabotage=[AT_ONCE, *sabotage],
        )

    def kill_parent(self) -> None:
        """kill -9."""
        self.up.clear()
        self.server.process.kill()
        self.server.process.wait()

    def start_and_die(self, *sabotage: str, timeout: float = SLACK_S) -> None:
        """A server that dies of its sabotage, maybe before it listens; or is killed for that."""
        said = self.site.root / f"dying-{time.monotonic_ns()}"
        process = fork(self._birth(said, sabotage))
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def parent_died(self, timeout: float = SLACK_S) -> None:
        """Wait until the server has died of its sabotage."""
        self.server.process.wait(timeout)
        self.up.clear()

    def restart(self, *sabotage: str) -> RunningServer:
        """Kill the server, unless it is dead already, and start the next."""
        self.kill_parent()
        return self.start(*sabotage)

    def stop(self) -> None:
        """SIGTERM, to the end."""
        self.up.clear()
        assert self.server.stop(signal.SIGTERM, SLACK_S) == 0

    def suspend_parent(self) -> None:
        os.kill(self.server.pid, signal.SIGSTOP)

    def go_on_parent(self) -> None:
        os.kill(self.server.pid, signal.SIGCONT)

    def worker(self) -> psutil.Process:
        """The one living worker."""
        return self.server.worker()

    def warm(self) -> None:
        """Have a worker ready."""
        job = self.submit("[[tokens=1]]")
        self.ended(job)

    def worker_gone(self) -> None:
        """Kill whatever workers there are."""
        for worker in self.site.workers():
            worker.kill()
        wait_until(lambda: not self.site.workers(), SLACK_S, "the workers' death")

    # --- jobs ----------------------------------------------------------------------------------

    def submit(self, content: str, seed: int = 1, **fields: Any) -> str:
        """A durable job; its id."""
        answer = self.post("/v1/jobs", self.body(content, seed, **fields))
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def body(self, content: str, seed: int = 1, **fields: Any) -> dict[str, Any]:
        """What is posted for it; fields of the chat itself are given as ``body``."""
        chat = {
            "messages": [{"role": "user", "content": content}],
            "temperature": 0.8,
            **fields.pop("body", {}),
        }
        return {"kind": "chat", "model": self.model, "body": chat, "seed": seed, **fields}

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """The answer to a request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.client.post(f"{self.server.base}{path}", json=body, headers=named)

    def cancel(self, job: str) -> dict[str, Any]:
        """The job, cancelled."""
        answer = self.post(f"/v1/jobs/{job}/cancel")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def job(self, job: str) -> dict[str, Any]:
        """The job as the door tells it."""
        answer = self.server.get(f"/v1/jobs/{job}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, job: str, timeout: float = SLACK_S) -> Row:
        """The job's row, once it has ended."""
        return self.store.ended(job, timeout)

    def running(self, job: str, tokens: int = 1, timeout: float = SLACK_S) -> None:
        """Wait until the journal holds so many tokens of this job."""
        sql = "SELECT coalesce(sum(token_count), 0) AS count FROM chunk WHERE job = ?"
        wait_until(
            lambda: self.store.rows(sql, job)[0]["count"] >= tokens,
            timeout,
            f"{tokens} tokens of {job}",
        )

    # --- what the store says -------------------------------------------------------------------

    def tokens(self, job: str) -> list[int]:
        """The token ids in the job's journal, which has no gap. Its rows may have been joined."""
        tokens: list[int] = []
        for number, row in enumerate(self.chunks(job)):
            assert row["number"] >= number
            assert row["first_token"] == len(tokens)
            assert row["token_count"] == len(_TOKENS.decode(row["tokens"]))
            tokens += _TOKENS.decode(row["tokens"])
        return tokens

    def chunks(self, job: str) -> list[Row]:
        """The job's journal."""
        return self.store.rows("SELECT * FROM chunk WHERE job = ? ORDER BY number", job)

    def attempts(self, job: str) -> list[Row]:
        return self.store.attempts(job)

    def outcomes(self, job: str) -> list[str | None]:
        """How the job's attempts ended, in order."""
        return [row["outcome"] for row in self.attempts(job)]


def wait_for_address(process: ForkedProcess, said: Path, log: Path) -> str:
    """Where the server listens, once it does."""

    def address() -> str | None:
        found = re.search(r"on (http://\S+)\n", said.read_text()) if said.exists() else None
        assert found or process.poll() is None, log.read_text()[-3000:]
        return found[1] if found else None

    found = wait_until(address, SLACK_S, "the server's address")
    assert found
    return found


def assert_counted_once(place: Place, jobs: Sequence[str]) -> None:
    """One report each, and usage is what the attempts delivered."""
    for job in jobs:
        row, attempts = place.store.job(job), place.attempts(job)
        (report,) = place.store.reports(job)
        delivered = sum(attempt["delivered_tokens"] for attempt in attempts)
        assert row["completion_tokens"] == delivered, job
        assert report["payload"]["usage"]["completion_tokens"] == delivered, job
        assert report["outcome"] == row["state"], job
        assert all(attempt["outcome"] for attempt in attempts), job
        prompts = [attempt["prompt_tokens"] for attempt in attempts if attempt["accepted_at"]]
        assert row["prompt_tokens"] == (prompts or [0])[0], job
    assert not [row for row in place.store.commands() if row["job"] in jobs]
