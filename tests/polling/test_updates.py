"""The changes of one job, as they are iterated."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentjobs_async import AgentJob, AuthError, JobTracker, WaitEnded, WaitTimeoutError
from tests.polled import (
    ACTIVE,
    DONE,
    REF,
    Polled,
    assert_nothing_left,
    changed,
    clock,
    every,
    forbidden,
    in_memory,
    let_go,
    never,
)
from tests.rows import failures_at_once

pytestmark = in_memory


async def test_updates() -> None:
    """The state now, then each change, until the end, the terminal state included; then the iteration is over."""
    get_job = Polled("active", "active", changed("m"), OSError(), changed("m"), changed("n"), "completed")
    async with JobTracker(get_job, policy=every(5)) as tracker:
        async with tracker.updates(REF) as changes:
            seen = [(round(clock()), job) async for job in changes]
            assert [job async for job in changes] == []
        assert_nothing_left(tracker)
    assert seen == [(0, ACTIVE), (10, changed("m")), (25, changed("n")), (30, DONE)]


async def test_slow_reader_gets_the_newest() -> None:
    """Who reads slowly gets the newest state, no backlog, and the last one in any case."""
    get_job = Polled(*(changed(str(number)) for number in range(100)), "completed")
    async with JobTracker(get_job, policy=every(1)) as tracker, tracker.updates(REF) as changes:
        models = []
        async for job in changes:
            models.append(job.model)
            await asyncio.sleep(30.4)
    assert models == ["0", "30", "60", "91", None]


async def test_updates_of_a_known_job() -> None:
    """A job that is given is the state now; one that has ended is all there is, without a poll."""
    for known, later, at in ((ACTIVE, [DONE], [0, 5]), (DONE, [], [])):
        events: list[Any] = []
        get_job = Polled("active", "completed")
        async with JobTracker(get_job, policy=every(5), hooks=[events.append]) as tracker:
            async with tracker.updates(known) as changes:
                assert await anext(changes) is known
                assert [job async for job in changes] == later
        assert get_job.at() == at
        assert sum(isinstance(event, WaitEnded) for event in events) == 1


async def test_error_of_updates() -> None:
    """The wait's error comes out of the iteration after the last state; then the iteration is over."""

    async def check(kind: type[Exception], *steps: object) -> None:
        async with (
            JobTracker(Polled(*steps), policy=every(2, answer_grace=0)) as tracker,
            tracker.updates(REF, timeout=9) as changes,
        ):
            seen = []
            with pytest.raises(kind):
                async for job in changes:
                    seen.append(job)
            assert seen == [ACTIVE] * ("active" in steps)
            assert [job async for job in changes] == []

    ends = (AuthError, forbidden), (LookupError, LookupError()), (RuntimeError, StopAsyncIteration())
    rows = [(kind, *first, step) for kind, step in (*ends, (WaitTimeoutError, never)) for first in ([], ["active"])]
    assert await failures_at_once(check, *rows, (WaitTimeoutError, "active")) == {}


async def test_leaving_updates_early() -> None:
    """Leaving the block stops the polling and leaves nothing; the iteration is over, with no error."""
    get_job = Polled("active", never)
    async with JobTracker(get_job, policy=every(2)) as tracker:
        async with tracker.updates(REF) as changes:
            async for _ in changes:
                break
            await asyncio.sleep(3)
        await let_go()
        assert_nothing_left(tracker)
        assert [job async for job in changes] == []
    assert get_job.at() == [0, 2]


async def test_cancelled_anext() -> None:
    """A cancelled `anext` loses no change, also where that comes in the same iteration of the loop, nor the end."""
    get_job = Polled("active", changed("m"), changed("n"), "completed")
    async with JobTracker(get_job, policy=every(5)) as tracker, tracker.updates(REF) as changes:
        seen: list[AgentJob] = []
        while not (seen and seen[-1].is_terminal):
            try:
                async with asyncio.timeout(2.5):  # every second one ends at the very time of a poll
                    seen.append(await anext(changes))
            except TimeoutError:
                continue
    assert seen == [ACTIVE, changed("m"), changed("n"), DONE]


async def test_reader_in_another_task_when_the_block_is_left() -> None:
    """A reader in another task ends when the block is left: no state comes any more."""
    async with JobTracker(Polled("active"), policy=every(5)) as tracker:
        async with tracker.updates(REF) as changes:
            reader = asyncio.ensure_future(_read(changes))
            await asyncio.sleep(12)
        await asyncio.wait([reader], timeout=60)
        assert reader.done()
        assert reader.result() == [ACTIVE]


async def _read(changes: AsyncIterator[AgentJob]) -> list[AgentJob]:
    return [job async for job in changes]
