"""What only the polls of a session show: where they asked."""

from typing import Any

import pytest

from agentjobs_async import JobPolled, PollFailed, WaitEnded
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
