"""The recipes as processes: started as their docstrings say, watched, and ended by a signal."""

import ast
import asyncio
import codecs
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from agentjobs_async.testing import Emulator, JobScript
from tests.extras import FRAMEWORKS, need_recipes
from tests.recipes import supervisor
from tests.until import PATIENCE_SECONDS

RECIPES: Final = Path(__file__).parents[2] / "docs" / "recipes"
APPLICATIONS: Final = {
    "fastapi_app": "fastapi_app:app",
    "starlette_app": "starlette_app:app",
    "litestar_app": "litestar_app:app",
    "django_project": "--ws none django_project.asgi:application",
}
"""What uvicorn is called with, by recipe: options, and what it serves."""

SETTINGS: Final = {"PORT": "0"}
ENDLESS: Final = JobScript(duration=float("inf"))
LONG: Final = "\n".join(f"{n}. Fix <b>https://docs.example/?a=1&b={n}</b> 'äöü' 🎉\t" for n in range(50))
"""A prompt of fifty lines, with characters that some formats escape."""


def files_of(recipe: str) -> list[Path]:
    """Return the files of a recipe: one, or those of its folder."""
    file = RECIPES / f"{recipe}.py"
    return [file] if file.exists() else sorted((RECIPES / recipe).glob("*.py"))


def imports_of(recipe: str) -> list[str]:
    """Return the modules that a recipe imports, but for its own."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files_of(recipe)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return [name for name in names if name.split(".")[0] != recipe]


class Process:
    """A running recipe.

    Attributes:
        address: The address on which it serves.
        output: What it has written so far, to both streams.
    """

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a piece may end amid a character
        self._pid = 0
        self.address = ""
        self.output = ""

    async def read_until(self, pattern: str, times: int = 1) -> str:
        """Wait until the output has `times` matches of `pattern`, and return the last one."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found := re.findall(pattern, self.output)) < times:
                has_ended = self._pid and f"<{self._pid} ended: " in self.output
                piece = b"" if has_ended else await self._stream.read(65536)
                assert piece, f"it ended: {self.output}"
                self.output += self._decoder.decode(piece)
        return str(found[-1])

    async def begin(self) -> None:
        """Wait until the process runs."""
        self._pid = int(await self.read_until(r"<(\d+) runs>"))

    async def watch(self, awaited: Awaitable[object]) -> None:
        """Await what is to come while the process runs; fail with what it wrote if it ends before that."""
        waiting = asyncio.ensure_future(awaited)
        ended = asyncio.ensure_future(self.end())
        try:
            await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
            assert waiting.done(), self.output
            waiting.result()
        finally:
            for task in (waiting, ended):
                task.cancel()
            await asyncio.wait([waiting, ended])

    async def read_address(self) -> None:
        """Wait until the process serves, and set its address."""
        self.address = await self.read_until(r"unning on (http://[\d.]+:\d+)")

    def interrupt(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)

    async def end(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        return int(await self.read_until(rf"<{self._pid} ended: (-?\d+)>"))

    async def stop(self, number: int = signal.SIGTERM, code: int = 0, *, has_logged: bool = False) -> None:
        """End the process by a signal that comes twice; `has_logged` is whether it has logged an error."""
        self.interrupt(number)
        self.interrupt(number)
        assert await self.end() == code
        assert has_logged or "Traceback" not in self.output
        assert "Unclosed" not in self.output
        assert "never " not in self.output  # awaited, or retrieved


class Program:
    """A recipe that may be run several times, one run after the other."""

    def __init__(self, commands: BinaryIO, stream: asyncio.StreamReader) -> None:
        self._commands = commands
        self._stream = stream

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        """Return a block in which the recipe runs; the process is killed at its end."""
        process = Process(self._stream)
        self._commands.write(b"\n")
        await process.begin()
        try:
            yield process
        finally:
            process.interrupt(signal.SIGKILL)
            await process.end()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Process]:
        """Return a block in which the recipe serves on a free port of loopback."""
        async with self.running() as process:
            await process.read_address()
            yield process


@asynccontextmanager
async def program(
    recipe: str, environment: Mapping[str, str], *arguments: str, before: tuple[str, ...] = ()
) -> AsyncIterator[Program]:
    """Return a block in which a recipe can be run; skip the test without its framework.

    Args:
        recipe: The name of the recipe.
        environment: What is added to the environment.
        arguments: The arguments of the recipe.
        before: The arguments of Python before the recipe's path: those of a program that runs it.
    """
    imported = imports_of(recipe)
    if any(name.split(".")[0] in FRAMEWORKS for name in imported):
        need_recipes()
    command = [*before, *map(str, files_of(recipe)[:1]), *arguments]
    if recipe in APPLICATIONS:
        command = ["-m", "uvicorn", "--port", "0", "--app-dir", str(RECIPES), *APPLICATIONS[recipe].split()]
        imported = [*imported, "uvicorn"]
    with ExitStack() as stack:
        read_end, write_end = os.pipe()
        standard_input = stack.enter_context(os.fdopen(read_end, "rb"))
        commands = stack.enter_context(os.fdopen(write_end, "wb", buffering=0))
        read_end, write_end = os.pipe()
        output = stack.enter_context(os.fdopen(read_end, "rb"))
        with os.fdopen(write_end, "wb"):
            supervisor.start(
                command,
                imported,
                env={**os.environ, **SETTINGS, **environment},
                streams=(standard_input.fileno(), write_end, write_end),
            )
        stream = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), output)
        try:
            yield Program(commands, stream)
        finally:
            transport.close()


async def complete(service: Emulator) -> None:
    """Let all jobs be completed from now on: none ends before its test wants it to."""
    await service.inject("document status=completed prLink=https://code.example/1 forever on=get")


async def connect(
    process: Process, *lines: str, body: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the head of a request, whose characters stand for bytes, with a body, and return the connection."""
    reader, writer = await asyncio.open_connection(*process.address.removeprefix("http://").split(":"))
    head = "".join(f"{line}\r\n" for line in (*lines, "Host: x", ""))
    writer.write(head.encode("latin-1") + body)
    return reader, writer


async def half_a_body(process: Process, path: str, *headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a part of a body once the server waits for it, and return the connection."""
    head = [f"POST {path} HTTP/1.1", "Expect: 100-continue", "Content-Length: 10", *headers]
    reader, writer = await connect(process, *head)
    assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"{")
    await writer.drain()
    return reader, writer
