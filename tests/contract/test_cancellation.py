"""Cancelling: out at once from every step, no task and no socket left behind, and nothing sent any more."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    CreateFailed,
    CreateOutcome,
    Event,
    HttpTimeouts,
    JobPolled,
    PollFailed,
    WaitEnded,
)
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.testing._faults.plans import Plans
from tests.contract.sockets import Mute, connections, full_listener, silent_listener
from tests.contract.ways import ENDLESS, Waiting, met_by
from tests.polled import every, let_go
from tests.rows import failures_in_turn
from tests.scripted import KEY

pytestmark = pytest.mark.looptime

PROMPT: Final = "Fix it"
ENDED: Final = JobScript(duration=0)
SMALL, LARGE = 10, 50_000_000
Call = Callable[[], Coroutine[Any, Any, object]]


def after(seconds: float) -> Callable[[], Awaitable[None]]:
    return partial(asyncio.sleep, seconds)


async def cancelled(call: Call, lead: Callable[[], Awaitable[None]], times: int = 1) -> bool:
    """Cancel a call after `lead`; tell whether it was still under way. It has to leave at once, and leave nothing."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(call())
    await lead()
    under_way = not task.done()
    began = loop.time()
    for _ in range(times):
        task.cancel()
    if under_way:
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    assert loop.time() - began <= 0.1
    return under_way


async def quiet(emulator: Emulator, sent: int, sockets: int) -> None:
    """Check that nothing is sent any more, and that no task and no socket is left."""
    await asyncio.sleep(300)
    assert len(emulator.requests) == sent
    assert connections() <= sockets


@asynccontextmanager
async def same_tasks() -> AsyncIterator[None]:
    """Check that the block leaves no task behind."""
    before = _tasks()
    yield
    assert _tasks() == before


def _tasks() -> set[asyncio.Task[Any]]:
    """Return all tasks but those of the servers."""
    return {task for task in asyncio.all_tasks() if not _SERVING & set(Path(_code(task).co_filename).parts)}


_SERVING: Final = {"web_protocol.py", "testing"}


def _code(task: asyncio.Task[Any]) -> CodeType:
    code: CodeType = task.get_coro().cr_code  # type: ignore[union-attr]  # every task here runs a coroutine
    return code


@pytest.mark.parametrize("open_listener", [full_listener, silent_listener])
async def test_connecting(open_listener: Callable[[str], AbstractAsyncContextManager[str]]) -> None:
    """What is cancelled while it connects was not sent, and its socket is closed."""

    async def check(name: str) -> None:
        events: list[Event] = []
        async with open_listener("https") as base_url, Emulator() as emulator:
            settings = {"base_url": base_url, "timeouts": HttpTimeouts(connect=60), "hooks": [events.append]}
            async with emulator.session(project_id="docs", **settings) as session:
                calls: dict[str, Call] = {
                    "create": lambda: session.create_job(PROMPT),
                    "read": lambda: session.get_job("job_1"),
                    "wait": lambda: session.wait_for_job(AgentJob("job_1", "docs", "active")),
                }
                sockets = connections()
                async with same_tasks():
                    assert await cancelled(calls[name], after(5))
                    await let_go()
                await quiet(emulator, 0, sockets)
        outcomes = [event.outcome for event in events if isinstance(event, CreateFailed)]
        assert outcomes == ([CreateOutcome.NOT_SENT] if name == "create" else [])

    assert await failures_in_turn(check, "create", "read", "wait") == {}


async def test_silent_server(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """What ends against a server that never says a word has no socket any more, and the rest is never sent."""

    async def check(how: str, tls: bool, size: int) -> None:  # noqa: FBT001 - a row of a table
        settings: dict[str, Any] = {"project_id": "docs", "ssl": client_tls, "timeouts": HttpTimeouts(request=3)}
        async with Mute(server_tls if tls else None) as server:
            session = AgentJobsSession(server.base_url, KEY, **settings)
            async with same_tasks(), session:
                tasks = [
                    asyncio.ensure_future(session.create_job("x" * size, timeout=3)),
                    asyncio.ensure_future(session.get_job("job_1")),
                ]
                await asyncio.sleep(2)
                assert (server.accepted, server.clients()) == (2, 2)
                if how == "cancelled":
                    for task in tasks:
                        task.cancel()
                elif how == "timed out":
                    await asyncio.sleep(2)
                else:
                    await session.aclose()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                await let_go()
                assert server.clients() == 0
            assert [type(end).__name__ for end in ends] == ends_of[how]
            assert size == SMALL or len(await server.read_on()) < size

    ends_of = {
        "cancelled": ["CancelledError", "CancelledError"],
        "timed out": ["CreateOutcomeUnknownError", "TransportError"],
        "closed": ["CreateOutcomeUnknownError", "SessionClosedError"],
    }
    rows = [*product(ends_of, (True, False), (SMALL,)), *product(ends_of, (True,), (LARGE,)), ("closed", False, LARGE)]
    assert await failures_in_turn(check, *rows) == {}


@pytest.mark.parametrize("name", ["create", "read"])
async def test_silent_server_at_every_moment(name: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """In whatever iteration of a handshake or after it an exchange is cancelled, it has no socket any more."""
    iterations = 0
    async with Mute(server_tls) as server:
        while server.accepted < 20:
            async with AgentJobsSession(server.base_url, KEY, project_id="docs", ssl=client_tls) as session:
                calls: dict[str, Call] = {
                    "create": partial(session.create_job, PROMPT),
                    "read": partial(session.get_job, "job_1"),
                }
                assert await cancelled(calls[name], partial(let_go, iterations))
                await let_go()
                assert server.clients() == 0, iterations
            iterations += 1
    assert iterations > 25


WAIT_STEPS: Final = (
    "hang",
    "hang:headers",
    "hang:body",
    "drip",
    "endless:headers every=0.5",
    "endless:body every=0.5",
    "endless:continues every=0.5",
    "ok",
    "429 retry-after=60",
    "503",
    "body:html",
    "refuse for=60",
)


async def test_wait(waiting: Waiting) -> None:
    """A wait is cancelled in the middle of a poll or between two; a connection in use is closed, nobody polls on."""

    async def check(fault: str) -> None:
        events: list[Event] = []
        async with (
            same_tasks(),
            Emulator(script=ENDLESS) as emulator,
            waiting(emulator, policy=every(20), hooks=[events.append]) as (session, wait),
        ):
            created = await _read_once(session, emulator, fault)
            sockets = connections()
            async with same_tasks():
                assert await cancelled(lambda: wait(created.ref), after(25))
                await let_go()
            await quiet(emulator, len(emulator.requests), sockets)
        ended = [event for event in events if isinstance(event, WaitEnded)]
        assert all(isinstance(event.error, asyncio.CancelledError) for event in ended)
        polled = [event for event in events if isinstance(event, JobPolled | PollFailed)]
        if ended:
            assert len(ended) == 1
            assert len(polled) == ended[0].polls

    assert await failures_in_turn(check, *met_by(waiting, WAIT_STEPS)) == {}


async def _read_once(session: AgentJobsSession, emulator: Emulator, fault: str) -> AgentJob:
    """Create a job, and read it on a connection that stays open; further reads meet the fault."""
    created = await session.create_job(PROMPT)
    await session.get_job(created)
    await emulator.inject(f"{fault} forever on=get" if "refuse" not in fault else fault)
    return created


async def test_wait_at_every_moment(waiting: Waiting) -> None:
    """In whatever iteration of the loop a wait is cancelled, it is out at once, and polls no more."""

    async def check(plan: str) -> None:
        iterations, under_way = 0, True
        async with Emulator(script=ENDED) as emulator, waiting(emulator, policy=every(1)) as (session, wait):
            created = await session.create_job(PROMPT)
            while under_way and iterations < 60:
                await emulator.inject(plan)
                async with same_tasks():
                    under_way = await cancelled(lambda: wait(created.ref), partial(let_go, iterations))
                    await let_go()
                sent = len(emulator.requests)
                await asyncio.sleep(50)
                assert len(emulator.requests) == sent
                emulator._plans = Plans()
                iterations += 3
        assert iterations > 8

    plans = ("ok", "500 on=get", "close on=get", "body:html on=get", "short on=get")
    assert await failures_in_turn(check, *plans) == {}
