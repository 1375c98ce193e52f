"""Waits: every error status for every way to wait, connections never made, and answers nobody asked for."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from agentjobs_async import (
    HttpTimeouts,
    NotSentError,
    ProtocolError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.sockets import full_listener, silent_listener
from tests.contract.tables import ENDING, PASSING
from tests.contract.ways import ENDLESS, REF, Waiting, gets, met_by
from tests.polled import clock, every
from tests.rows import end_of, failures_at_once

pytestmark = pytest.mark.looptime

ENDED = JobScript(duration=0)


async def test_every_error_status(waiting: Waiting) -> None:
    """Each of the 300 error statuses, all at once: passing ones last until the deadline, others end it at once."""
    assert sorted((*PASSING, *ENDING)) == list(range(300, 600))
    expected: dict[str, tuple[type, int]] = {str(status): (WaitTimeoutError, 3) for status in PASSING}
    expected |= {str(status): (kind, 1) for status, kind in ENDING.items()}
    expected["429"] = (WaitTimeoutError, 2)  # the second one pauses its project for 2 s, beyond the deadline
    async with (
        Emulator(script=ENDED) as emulator,
        waiting(emulator, policy=every(5, not_found_grace=0)) as (session, wait),
    ):

        async def check(status: str) -> None:
            created = await session.create_job(status, project_id=status)
            await emulator.inject(f"{status} forever", job_id=created.id)
            end = await end_of(wait(created.ref, timeout=7))
            await asyncio.sleep(100)
            assert (type(end), len(gets(emulator, created))) == expected[status]

        assert await failures_at_once(check, *met_by(waiting, expected)) == {}
    assert emulator.foreign.connections == 0


@pytest.mark.parametrize("open_listener", [full_listener, silent_listener])
async def test_connection_never_made(open_listener: Callable[[str], AbstractAsyncContextManager[str]]) -> None:
    """A connection that is never made holds no wait beyond its deadline either."""
    settings = {"policy": every(1), "timeouts": HttpTimeouts(connect=2)}
    async with (
        open_listener("https") as base_url,
        Emulator() as emulator,
        emulator.session(base_url=base_url, **settings) as session,
    ):
        for timeout in (7.0, 0.5):
            began = clock()
            with pytest.raises(WaitTimeoutError) as caught:
                await session.wait_for_job(REF, timeout=timeout)
            assert timeout <= clock() - began <= timeout + 0.25
            assert isinstance(caught.value.last_error, TransportError | NotSentError)


async def test_surplus_answers() -> None:
    """What a server sends without being asked never counts as the answer to the next request."""
    faults = ("surplus", "surplus after=0.01", "surplus:bytes", "surplus:bytes after=0.01", "overlong")
    async with (
        Emulator(script=ENDLESS, faults=" then ".join(f"{fault} x5 on=get" for fault in faults)) as emulator,
        emulator.session(project_id="docs") as session,
    ):
        created = await session.create_job("Fix it")
        for _ in range(25):
            try:
                assert await session.get_job(created) == created
            except (ProtocolError, TransportError):
                await asyncio.sleep(0)
            await asyncio.sleep(1)
        assert await session.get_job(created) == created
    assert len(gets(emulator)) == 26
