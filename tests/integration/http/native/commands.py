"""The command line against a server of this test's: within this process, or as one of its own."""

import asyncio
import contextlib
import os
import pty
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from click.testing import CliRunner, Result

from app.cli.main import cli


def address(port: int) -> str:
    return f"http://127.0.0.1:{port}"


async def mlxq(port: int, *arguments: str, stdin: str | bytes | None = None) -> Result:
    """One command, in a thread: the server answers it from this loop."""
    environ = {"MLXQ_URL": address(port)}
    return await asyncio.to_thread(CliRunner().invoke, cli, arguments, stdin, environ)


@dataclass
class Command:
    """A command that runs."""

    process: asyncio.subprocess.Process
    complaints: "asyncio.Future[str]"

    async def printed(self, text: str) -> None:
        """Waits until this has come on standard output."""
        assert self.process.stdout is not None
        await self.process.stdout.readuntil(text.encode())

    async def end(self) -> tuple[int, str, str]:
        """The exit status and what else came on standard output and standard error."""
        assert self.process.stdout is not None
        out = await self.process.stdout.read()
        return await self.process.wait(), out.decode(), await self.complaints

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@asynccontextmanager
async def running(port: int, *arguments: str, on_terminal: bool) -> AsyncGenerator[Command]:
    """A command as a process, its standard error on a terminal or in a pipe."""
    ours, theirs = pty.openpty() if on_terminal else os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app.cli.main",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "MLXQ_URL": address(port)},
        preexec_fn=_heed_interrupts,
    )
    os.close(theirs)
    complaints = asyncio.ensure_future(asyncio.to_thread(_all_of, ours))
    try:
        yield Command(process, complaints)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await complaints
        os.close(ours)


def _heed_interrupts() -> None:
    """A shell lets what it runs in the background ignore Ctrl-C, tests and all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _all_of(descriptor: int) -> str:
    pieces: list[bytes] = []
    with contextlib.suppress(OSError):  # how a terminal without anyone on its other side ends
        while piece := os.read(descriptor, 4096):
            pieces.append(piece)
    return b"".join(pieces).decode().replace("\r\n", "\n")
