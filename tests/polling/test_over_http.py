"""What only the polls of a session show: where they asked, and that large documents are not kept."""

import asyncio
import gc
from typing import Any

import pytest

from agentjobs_async import AgentJob, AgentJobsSession, JobPolled, PollFailed, WaitEnded, WaitTimeoutError
from tests.polled import REF, clock, every
from tests.scripted import Scripted, job, reply

pytestmark = pytest.mark.looptime


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


def _held() -> int:
    """Return how many documents with a log there are in memory."""
    gc.collect()
    return sum(isinstance(found, dict) and found.get("log") == LOG for found in gc.get_objects())


LOG = [["x" * 20_000]]


async def test_large_documents_are_not_kept_between_polls() -> None:
    """However a job is waited for, its large document is not held between two polls; the last one comes whole."""
    seen: list[int] = []

    def note(job: AgentJob) -> None:
        seen.append(len(job.raw["log"][0][0]))

    async def read(session: AgentJobsSession) -> None:
        async with session.updates("job_1") as changes:
            async for found in changes:
                note(found)
                del found

    script = [job(model=str(number), log=LOG) for number in range(3)] + [job("completed", log=LOG)]
    async with Scripted(*script) as server, server.session(policy=every(10)) as session:
        reader = asyncio.ensure_future(read(session))
        waiting = asyncio.ensure_future(session.wait_for_job("job_1", on_update=note))
        for polls in range(1, 4):
            await asyncio.sleep(9)
            assert (session.stats().polls, _held()) == (polls, 0)
        assert (await waiting).raw["log"] == LOG
        await reader
    assert seen == [20_000] * 8


async def test_last_document_of_a_timeout() -> None:
    """What a time-out tells of the job has no large document."""
    async with Scripted(*[job(log=LOG)] * 6) as server, server.session(policy=every(2)) as session:
        with pytest.raises(WaitTimeoutError) as caught:
            await session.wait_for_job("job_1", timeout=5)
    assert caught.value.last_job is not None
    assert (caught.value.last_job.status, caught.value.last_job.raw) == ("active", {})
