"""The recipes as processes: started as their docstrings say, watched, and ended by a signal."""

import asyncio
import codecs
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from agentjobs_async.testing import Emulator, JobScript

RECIPES: Final = Path(__file__).parents[2] / "docs" / "recipes"
UVICORN: Final = ("-m", "uvicorn", "--port", "0", "--app-dir", str(RECIPES))
SERVERS: Final[dict[str, tuple[str, ...]]] = {
    "fastapi_app": (*UVICORN, "fastapi_app:app"),
    "starlette_app": (*UVICORN, "starlette_app:app"),
    "litestar_app": (*UVICORN, "litestar_app:app"),
    "aiohttp_web": (str(RECIPES / "aiohttp_web.py"),),
    "django_asgi": (*UVICORN, "django_asgi:application"),
}
"""The arguments of Python by which each recipe of a web framework is started."""

SETTINGS: Final = {"TOKEN_SECRET": "a secret of 16 bytes or more", "PORT": "0", "PYTHONUNBUFFERED": "1"}
ENDLESS: Final = JobScript(duration=float("inf"))

PATIENCE_SECONDS: Final = 200.0
"""Until a process that hangs is killed, so that its test fails."""


class Process:
    """A running recipe.

    Attributes:
        address: The address on which it serves.
        output: What it has written so far, to both streams.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a piece may end amid a character
        self.address = ""
        self.output = ""

    async def read_until(self, pattern: str, times: int = 1) -> str:
        """Wait until the output has `times` matches of `pattern`, and return the last one."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found := re.findall(pattern, self.output)) < times:
                piece = await self._process.stdout.read(65536)
                assert piece, f"it ended: {self.output}"
                self.output += self._decoder.decode(piece)
        return str(found[-1])

    async def read_address(self) -> None:
        """Wait until the process serves, and set its address."""
        self.address = await self.read_until(r"unning on (http://[\d.]+:\d+)")

    def interrupt(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def end(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            self.output += self._decoder.decode(await self._process.stdout.read())
            return await self._process.wait()


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that has no event."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


async def complete(service: Emulator) -> None:
    """Let all jobs be completed from now on: none ends before its test wants it to."""
    await service.inject("document status=completed prLink=https://code.example/1 forever on=get")


@asynccontextmanager
async def started(arguments: tuple[str, ...], environment: Mapping[str, str]) -> AsyncIterator[Process]:
    """Return a block in which Python runs with `arguments`; the process is killed at its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        env={**os.environ, **SETTINGS, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def serving(recipe: str, environment: Mapping[str, str]) -> AsyncIterator[Process]:
    """Return a block in which a web recipe serves on a free port of loopback."""
    async with started(SERVERS[recipe], environment) as process:
        await process.read_address()
        yield process


TERMINATED: Final = {"aiohttp_web": 0}
"""The exit codes at SIGTERM other than that of the signal itself, which uvicorn raises again."""


def code_at_sigterm(recipe: str) -> int:
    return TERMINATED.get(recipe, -signal.SIGTERM)
