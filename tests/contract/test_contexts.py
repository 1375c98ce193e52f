"""Context variables of a wait: what its hook sets when it starts is there when it ends, and then nothing keeps it."""

import asyncio
import gc
import weakref
from contextvars import ContextVar, Token
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    JobRef,
    JobTracker,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.polled import Polled, every

pytestmark = pytest.mark.looptime

CALLER: ContextVar[Any] = ContextVar("CALLER")
ENDLESS = JobScript(duration=float("inf"))


class Caller:
    """Somebody with data of his own, held by his context only."""


async def test_one_context_for_a_wait() -> None:
    """What a hook sets when a wait starts it finds, and can undo, when that wait ends."""
    span: ContextVar[JobRef] = ContextVar("span")
    tokens: dict[JobRef, Token[JobRef]] = {}

    def traced(event: object) -> None:
        if isinstance(event, WaitStarted):
            tokens[event.ref] = span.set(event.ref)
        if isinstance(event, WaitEnded):
            assert span.get() == event.ref
            span.reset(tokens.pop(event.ref))

    async with JobTracker(Polled("active", "completed"), policy=every(1), hooks=[traced]) as tracker:
        await asyncio.gather(*(tracker.watch(JobRef("docs", f"job_{number}")) for number in range(3)))
        assert (tokens, span.get(None)) == ({}, None)


async def test_polls_have_no_caller() -> None:
    """A poll, which serves all waits for its job, sees nothing of what the caller of the first one has set."""
    seen: list[object] = []

    async def get_job(ref: JobRef) -> AgentJob:
        seen.append(CALLER.get(None))
        return AgentJob(ref.job_id, ref.project_id, "completed")

    CALLER.set(Caller())
    async with JobTracker(get_job) as tracker:
        await tracker.wait_for_job(JobRef("docs", "job_1"))
    assert seen == [None]


@pytest.mark.parametrize("hooks", [[], [lambda _: None]])
async def test_contexts_are_let_go(hooks: list[Any]) -> None:
    """What the first request's context holds is gone with the request, while others still wait on the session."""
    async with (
        Emulator(script=ENDLESS) as emulator,
        emulator.session(project_id="docs", policy=every(2), hooks=hooks) as session,
    ):
        emulator.script(JobScript(duration=5), prompt="Fix it")

        async def request(prompt: str) -> "weakref.ref[Caller]":
            caller = Caller()
            CALLER.set(caller)
            job = await session.create_job(prompt)
            await session.get_job(job)
            with pytest.raises(TimeoutError):
                await session.wait_for_job(job, timeout=1)
            await session.get_job(job)
            if prompt == "Fix it":
                await session.wait_for_job(job, on_update=lambda _: None)
            return weakref.ref(caller)

        callers = [await asyncio.create_task(request("Fix it"))]
        others = [session.watch(await session.create_job(f"Fix {number}")) for number in range(3)]
        callers.append(await asyncio.create_task(request("Fix others")))
        await asyncio.sleep(60)  # longer than the loop keeps the timers of a request, which it only marks as cancelled
        gc.collect()
        assert [caller() for caller in callers] == [None, None]
        assert session.stats().jobs == len(others)
        assert session.stats().polls >= 3 * 25
