"""Responses whose delivery breaks."""

import asyncio
import json

import pytest

from agentjobs_async.testing import Emulator
from tests.testing.wire import ask, ask_to_the_end, connected, create, read, read_reply, request, start

CLOSE = "Connection: close"
pytestmark = pytest.mark.looptime


async def test_reset() -> None:
    """A reset breaks the connection with an error."""
    for where in ("reset", "reset:headers", "reset:body", "reset:after"):
        async with Emulator(faults=where) as emulator:
            with pytest.raises(ConnectionResetError):
                await ask_to_the_end(emulator, create(emulator))
            assert emulator.agents_started == {"write": 1}


async def test_close_amid_the_answer() -> None:
    """A close leaves the answer without a byte, with unfinished headers, or with an unfinished body."""
    async with Emulator(faults="close then close:headers then close:body") as emulator:
        nothing, headers, whole = [await ask_to_the_end(emulator, create(emulator)) for _ in range(3)]
    assert nothing == b""
    assert headers.startswith(b"HTTP/1.1 201 Created\r\n")
    assert b"\r\n\r\n" not in headers
    head, _, body = whole.partition(b"\r\n\r\n")
    assert 0 < len(body) < int(head.split(b"Content-Length: ")[1].split()[0])


async def test_close_after_the_answer() -> None:
    """A close after the answer ends a connection that would stay open."""
    async with Emulator(faults="close:after") as emulator, connected(emulator) as (reader, writer):
        writer.write(create(emulator))
        assert (await read_reply(reader)).status == 201
        assert await reader.read() == b""


async def test_hang_for_a_while() -> None:
    """A hang is silent for its time, then sends the rest."""
    loop = asyncio.get_running_loop()
    async with Emulator() as emulator:
        for where in ("hang", "hang:headers", "hang:body"):
            await emulator.inject(f"{where} for=30")
            before = loop.time()
            assert (await ask(emulator, create(emulator))).status == 201
            assert loop.time() - before == pytest.approx(30, abs=0.5)


async def test_hang_for_ever() -> None:
    """A hang sends the answer up to its `where` and nothing more."""
    for where, seen in (("hang", 0), ("hang:headers", 50), ("hang:body", 200)):
        async with Emulator(faults=where) as emulator, connected(emulator) as (reader, writer):
            writer.write(create(emulator))
            await reader.readexactly(seen)
            await asyncio.sleep(3600)
            silence = asyncio.create_task(reader.read())
            await asyncio.sleep(3600)
            assert not silence.done()
            silence.cancel()


async def test_drip() -> None:
    """A drip pauses after each byte."""
    loop = asyncio.get_running_loop()
    async with Emulator(faults="drip every=0.5") as emulator:
        before = loop.time()
        data = await ask_to_the_end(emulator, create(emulator, "write", "/v2/agent/docs/job", CLOSE))
    assert loop.time() - before == pytest.approx(len(data) / 2, rel=0.05)


async def test_short() -> None:
    """A short body lacks `by` bytes, even when the whole body is shorter than that."""
    async with Emulator() as emulator:
        for by in (0, 1, 200, 10_000):
            await emulator.inject(f"short by={by}")
            head, _, body = (await ask_to_the_end(emulator, create(emulator))).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201 Created\r\n")
            assert int(head.split(b"Content-Length: ")[1].split()[0]) - len(body) == by


async def test_hang_of_a_client_that_has_gone() -> None:
    """An endless silence ends when the client closes its side."""
    async with Emulator(faults="hang forever") as emulator, connected(emulator) as (reader, writer):
        writer.write(create(emulator))
        writer.write_eof()
        assert await reader.read() == b""


async def test_overlong() -> None:
    """An overlong body continues after its Content-Length, and the connection stays open."""
    async with Emulator(faults="overlong by=4") as emulator, connected(emulator) as (reader, writer):
        writer.write(create(emulator))
        assert json.loads((await read_reply(reader)).body)["status"] == "active"
        assert await reader.readexactly(4) == b"}}}}"


async def test_endless() -> None:
    """An endless answer continues for as long as the client reads."""
    pieces = {"headers": b"X-Filler-999: ", "body": b"4000\r\n" + b" " * 16384, "continues": b"HTTP/1.1 100 "}
    for where, piece in pieces.items():
        async with Emulator(faults=f"endless:{where}") as emulator, connected(emulator) as (reader, writer):
            writer.write(create(emulator))
            data = bytearray()
            while len(data) < 1_500_000:
                data += await reader.read(65536)
            assert piece in data
            assert b"\r\n\r\n" not in data or where != "headers"


async def test_endless_answer_unread() -> None:
    """An endless answer that the client does not read waits, and ends when the client leaves."""
    async with Emulator(faults="endless:body every=0.01") as emulator:
        async with connected(emulator) as (reader, writer):
            writer.write(create(emulator))
            await reader.readexactly(10)
            await asyncio.sleep(60)
        (job_id,) = emulator.jobs
        assert (await read(emulator, job_id)).status == 200


async def test_surplus_at_once() -> None:
    """The surplus answer follows the true one at once."""
    async with Emulator(faults="surplus id=job_9") as emulator, connected(emulator) as (reader, writer):
        writer.write(create(emulator))
        replies = [(await read_reply(reader)).document for _ in range(2)]
    assert [(reply["id"], reply["status"]) for reply in replies] == [(*emulator.jobs, "active"), ("job_9", "completed")]


async def test_surplus_later() -> None:
    """The surplus answer may come later, on the same connection."""
    loop = asyncio.get_running_loop()
    async with Emulator(faults="surplus after=0.005") as emulator, connected(emulator) as (reader, writer):
        writer.write(create(emulator))
        job_id = (await read_reply(reader)).document["id"]
        before = loop.time()
        assert (await read_reply(reader)).document["id"] == "job_forged"
        assert loop.time() - before == pytest.approx(0.005, abs=0.004)
        writer.write(request(emulator, "GET", f"/v2/agent/docs/job/{job_id}"))
        assert (await read_reply(reader)).document["id"] == job_id


async def test_surplus_after_the_client_left() -> None:
    """The surplus answer is dropped when the client has left."""
    async with Emulator(faults="surplus after=5") as emulator:
        await start(emulator)
        await asyncio.sleep(10)
        (job_id,) = emulator.jobs
        assert (await read(emulator, job_id)).status == 200


async def test_surplus_bytes() -> None:
    """Surplus bytes are not HTTP."""
    async with Emulator(faults="surplus:bytes") as emulator, connected(emulator) as (reader, writer):
        writer.write(create(emulator))
        await read_reply(reader)
        assert b"surplus" in await reader.readexactly(20)
