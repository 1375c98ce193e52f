"""Creates: one call starts one agent at the most, is sent again only where nothing was started, and never lies."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    CreateFailed,
    CreateOutcome,
    CreateRetried,
    Event,
    HttpTimeouts,
    InvalidInputError,
    JobCreated,
    RejectedError,
    SessionClosedError,
)
from agentjobs_async.testing import Emulator, FaultPlan
from tests.contract.sockets import full_listener, silent_listener
from tests.rows import failures_at_once

pytestmark = pytest.mark.looptime

PROMPT = "Fix it"


class Claims:
    """What the client says of its creates, and when: the caller's view, which the hook's has to equal."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.elapsed = 0.0

    async def of(self, session: AgentJobsSession, prompt: str = PROMPT, seconds: float = 120) -> CreateOutcome:
        """Create, and give the outcome that was claimed."""
        return (await self.made(session, prompt, seconds))[0]

    async def made(
        self, session: AgentJobsSession, prompt: str = PROMPT, seconds: float = 120
    ) -> tuple[CreateOutcome, AgentJob | AgentJobsError]:
        """Create, and give the outcome that was claimed and what the call ended with."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        result: AgentJob | AgentJobsError
        try:
            result = await session.create_job(prompt, timeout=seconds)
        except AgentJobsError as error:
            result = error
        self.elapsed = loop.time() - began
        assert self.elapsed <= seconds + 0.25
        if isinstance(result, AgentJob):
            return CreateOutcome.CREATED, result
        assert result.outcome is not None
        return CreateOutcome(result.outcome), result

    def hooked(self) -> list[CreateOutcome]:
        """Return the outcomes that the hook was told."""
        told = [event for event in self.events if isinstance(event, JobCreated | CreateFailed)]
        assert len(told) == sum(not isinstance(event, CreateRetried) for event in self.events)
        return [event.outcome if isinstance(event, CreateFailed) else CreateOutcome.CREATED for event in told]


@asynccontextmanager
async def served(faults: str = "", **settings: Any) -> AsyncIterator[tuple[Emulator, AgentJobsSession, Claims]]:
    claims = Claims()
    async with (
        Emulator(faults=faults or FaultPlan(())) as emulator,
        emulator.session(**{"project_id": "docs", "hooks": [claims.events.append]} | settings) as session,
    ):
        yield emulator, session, claims
    assert emulator.foreign.connections == 0


async def claimed(emulator: Emulator, plan: str) -> tuple[CreateOutcome, AgentJob | AgentJobsError, int, int]:
    """Create with a plan as the prompt; give the claim, the result, and how many agents started and requests came."""
    claims = Claims()
    await emulator.inject(plan, prompt=plan)
    async with emulator.session(project_id="docs", hooks=[claims.events.append]) as session:
        outcome, result = await claims.made(session, plan)
    assert claims.hooked() == [outcome]
    sent = [request.prompt for request in emulator.requests].count(plan)
    return outcome, result, emulator.agents_started[plan], sent


async def test_too_much() -> None:
    """An answer with more behind it counts or is unknown, never sent again, never the forged one."""
    for fault in ("overlong", "surplus", "surplus:bytes", "surplus after=1", "reset:after"):
        async with served(fault) as (emulator, session, claims):
            outcome, result = await claims.made(session)
            await asyncio.sleep(2)
            following = await session.create_job("Next")
        assert outcome in {CreateOutcome.CREATED, CreateOutcome.UNKNOWN}
        first, second = emulator.jobs
        assert following.id == second
        assert not isinstance(result, AgentJob) or result.id == first
        assert emulator.agents_started == {PROMPT: 1, "Next": 1}
        assert len(emulator.requests) == 2


SEQUENCES: Final = {
    "429": (CreateOutcome.CREATED, 2),
    "429 retry-after=2": (CreateOutcome.CREATED, 2),
    "429 retry-after=60 then 429 retry-after=date+30": (CreateOutcome.CREATED, 3),
    "429 x5": (CreateOutcome.CREATED, 6),
    "429 then 500": (CreateOutcome.UNKNOWN, 2),
    "429 then reset": (CreateOutcome.UNKNOWN, 2),
    "429 then hang": (CreateOutcome.UNKNOWN, 2),
    "429 then 503 retry-after=1": (CreateOutcome.UNKNOWN, 2),
    "429 then 400": (CreateOutcome.REJECTED, 2),
    "429 then 302": (CreateOutcome.REJECTED, 2),
    "refuse for=5": (CreateOutcome.CREATED, 1),
    "refuse for=5 then 429 then refuse for=5": (CreateOutcome.CREATED, 2),
    "refuse for=5 then close": (CreateOutcome.UNKNOWN, 1),
    "refuse for=5 then 503": (CreateOutcome.UNKNOWN, 1),
    "refuse for=200": (CreateOutcome.NOT_SENT, 0),
    "429 retry-after=61": (CreateOutcome.REJECTED, 1),
    "429 retry-after=99999999999999999999": (CreateOutcome.REJECTED, 1),
}


async def test_sequences() -> None:
    """What was not sent and what was put off goes again, until something else happens, which stands."""

    async def check(plan: str) -> None:
        outcome, expected_requests = SEQUENCES[plan]
        async with served(plan) as (emulator, session, claims):
            assert await claims.of(session) is outcome
        assert len(emulator.requests) == expected_requests
        assert claims.hooked() == [outcome]
        started = emulator.agents_started[PROMPT]
        assert started <= 1
        assert outcome is CreateOutcome.UNKNOWN or started == (outcome is CreateOutcome.CREATED)

    assert await failures_at_once(check, *SEQUENCES) == {}


@pytest.mark.parametrize("open_listener", [full_listener, silent_listener])
async def test_never_connected(open_listener: Callable[[str], AbstractAsyncContextManager[str]]) -> None:
    """A connection that is never made ends the create in its time, as not sent."""
    for connect in (2.0, 60.0):
        claims = Claims()
        settings: dict[str, Any] = {"hooks": [claims.events.append], "timeouts": HttpTimeouts(connect=connect)}
        async with (
            open_listener("https") as base_url,
            AgentJobsSession(base_url, "0123456789", project_id="docs", **settings) as session,
        ):
            outcome, error = await claims.made(session, seconds=9)
        assert (outcome, getattr(error, "reason", None)) == (CreateOutcome.NOT_SENT, "timeout")
        assert claims.hooked() == [CreateOutcome.NOT_SENT]


REFUSED: dict[str, Callable[[AgentJobsSession], Any]] = {
    "blank": lambda session: session.create_job(" \n"),
    "surrogate": lambda session: session.create_job("\ud800"),
    "no text": lambda session: session.create_job(7),  # type: ignore[arg-type]  # refused at run time, too
    "no time": lambda session: session.create_job("x", timeout=0),
    "no end": lambda session: session.create_job("x", timeout=float("inf")),
    "NaN": lambda session: session.create_job("x", timeout=float("nan")),
    "a bool": lambda session: session.create_job("x", timeout=True),
    "project ..": lambda session: session.create_job("x", project_id=".."),
    "project of two lines": lambda session: session.create_job("x", project_id="a\r\nb"),
    "project too long": lambda session: session.create_job("x", project_id="x" * 513),
}


async def test_input_refused() -> None:
    """Input that makes no sense is not sent, without any I/O; nor is anything of a closed session."""
    async with served() as (emulator, session, _):
        for name, call in REFUSED.items():
            with pytest.raises(InvalidInputError) as caught:
                await call(session)
            assert caught.value.outcome is CreateOutcome.NOT_SENT, name
        await session.aclose()
        with pytest.raises(SessionClosedError) as closed:
            await session.create_job("x")
        assert closed.value.outcome is CreateOutcome.NOT_SENT
    assert (emulator.requests, emulator.connections) == ((), 0)


async def test_redirects_are_not_followed() -> None:
    """No redirect of any kind takes the prompt or the key to another place."""
    targets = ("", " location={base}/v2/agent/docs/job", " location=/v2/agent/docs/job", " location={foreign}/?k={key}")
    faults = [f"{status}{target}" for status in range(300, 309) for target in targets]
    async with served() as (emulator, session, _):
        for fault in faults:
            await emulator.inject(fault, prompt=fault)
        ends = await asyncio.gather(*(Claims().made(session, fault) for fault in faults))
        for fault, (outcome, error) in zip(faults, ends, strict=True):
            unknown = fault.startswith("303")
            assert outcome is (CreateOutcome.UNKNOWN if unknown else CreateOutcome.REJECTED), fault
            assert unknown or isinstance(error, RejectedError), fault
            assert "?k=" not in str(error), fault
    assert len(emulator.requests) == len(faults)
    assert (emulator.foreign.requests, emulator.foreign.connections) == ((), 0)


@pytest.mark.parametrize(
    "prompt", ["x", " \tnäh ÷ 日本語 🎉 \u2028\x00\x1b\\\"' \r\n", "é" * 3_000_000, '{"prompt": "y"}', "{key}"]
)
async def test_prompt_arrives_as_it_is(prompt: str) -> None:
    """A prompt arrives byte for byte, in UTF-8, to one agent, on a connection of its own."""
    async with served() as (emulator, session, claims):
        assert await claims.of(session, prompt) is CreateOutcome.CREATED
        await session.create_job("Next")
    assert emulator.agents_started == {prompt: 1, "Next": 1}
    assert [request.connection for request in emulator.requests] == [1, 2]
    assert json.dumps({"prompt": prompt}, ensure_ascii=False).encode() == emulator.requests[0].body
