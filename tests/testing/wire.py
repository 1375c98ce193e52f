"""A client that reads raw bytes, for tests of a server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from agentjobs_async.testing import Emulator

JOBS = "/v2/agent/docs/job"


@attrs.frozen
class Reply:
    """A response that was read."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header.lower() == name.lower()]


def request(emulator: Emulator, method: str = "GET", path: str = JOBS, body: bytes = b"", *extra: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {emulator.api_key}", *extra]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def create(emulator: Emulator, prompt: str = "write", path: str = JOBS, *extra: str) -> bytes:
    return request(emulator, "POST", path, json.dumps({"prompt": prompt}).encode(), *extra)


@asynccontextmanager
async def connected(emulator: Emulator) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(emulator.host, emulator.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """Read one response, whose body has a Content-Length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = tuple((name, value) for name, _, value in (line.partition(": ") for line in lines))
    reply = Reply(int(first.split()[1]), headers, b"")
    lengths = reply.all("Content-Length")
    return attrs.evolve(reply, body=await reader.readexactly(int(lengths[0]))) if lengths else reply


async def ask(emulator: Emulator, data: bytes) -> Reply:
    """Send a request on a new connection and read its response."""
    async with connected(emulator) as (reader, writer):
        writer.write(data)
        return await read_reply(reader)


async def ask_to_the_end(emulator: Emulator, data: bytes) -> bytes:
    """Send a request and read until the server closes."""
    async with connected(emulator) as (reader, writer):
        writer.write(data)
        return await reader.read()


async def start(emulator: Emulator, prompt: str = "write", path: str = JOBS) -> str:
    """Create a job and return its id."""
    reply = await ask(emulator, create(emulator, prompt, path))
    return str(reply.document["id"])


async def read(emulator: Emulator, job_id: str, path: str = JOBS) -> Reply:
    """Read a job."""
    return await ask(emulator, request(emulator, "GET", f"{path}/{job_id}"))
