"""Polls of a session over HTTP: in short, the same as in memory."""

import asyncio
from typing import Any

import pytest

from agentjobs_async import HttpTimeouts, JobPolled, PollFailed, WaitEnded
from agentjobs_async.testing import Emulator, JobScript
from tests.polled import REF, clock, every
from tests.scripted import Scripted, job, reply

pytestmark = pytest.mark.looptime


async def test_outage() -> None:
    """A server that refuses connections is tried by one poll at a time, and every job is found when it is back."""
    events: list[Any] = []
    settings: dict[str, Any] = {"policy": every(5), "timeouts": HttpTimeouts(connect=2), "hooks": [events.append]}
    async with (
        Emulator(script=JobScript(duration=100)) as emulator,
        emulator.session(project_id="docs", **settings) as session,
    ):
        created = [await session.create_job(f"Fix {number}") for number in range(30)]
        events.clear()  # only the polls are counted
        waits = [session.watch(job) for job in created]
        await asyncio.sleep(7)
        polls = len(events)
        async with emulator.refusing():
            await asyncio.sleep(60)
        assert len(events) - polls <= 30 + 60 / 5
        results = await asyncio.gather(*waits)
    assert all(result.succeeded for result in results)


async def test_as_completed() -> None:
    """By bare ids, too: results come in order, and leaving early asks no more."""
    async with Emulator() as emulator, emulator.session(project_id="docs", policy=every(5)) as session:
        for number in range(4):
            emulator.script(JobScript(duration=20.0 * (4 - number)), prompt=f"Fix {number}")
        created = [await session.create_job(f"Fix {number}") for number in range(4)]
        async with session.as_completed([job.id for job in created]) as finished:
            results = [await anext(finished) for _ in range(2)]
        asked = len(emulator.requests)
        await asyncio.sleep(100)
        assert len(emulator.requests) == asked
    assert [result.ref for result in results] == [created[3].ref, created[2].ref]


async def test_updates() -> None:
    """A web page's view of a job: each stage once."""
    script = JobScript(duration=60, stages=((20, "planning"), (40, "reviewing")))
    async with Emulator(script=script) as emulator, emulator.session(project_id="docs", policy=every(3)) as session:
        created = await session.create_job("Fix it")
        async with session.updates(created.id) as changes:
            assert [job.status async for job in changes] == ["active", "planning", "reviewing", "completed"]


async def test_events() -> None:
    """A wait's last event says where it asked, and how long before its end the job was last seen active."""
    events: list[Any] = []
    script = [job(), job(), reply(500), reply(404), job("failed")]
    async with Scripted(*script) as server, server.session(policy=every(2), hooks=[events.append]) as session:
        began = clock()
        ended = await session.wait_for_job("job_1")
        elapsed = clock() - began
    assert [type(event) for event in events[2:6]] == [JobPolled, PollFailed, PollFailed, JobPolled]
    (end,) = [event for event in events if isinstance(event, WaitEnded)]
    assert end == WaitEnded(REF, ended, None, 5, elapsed, lateness=end.lateness, server_address="127.0.0.1")
    assert end.lateness == pytest.approx(6)
