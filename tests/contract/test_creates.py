"""Creates: one call starts one agent at the most, is sent again only where nothing was started, and never lies."""

import asyncio
import errno
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

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
    NotSentError,
    RateLimitedError,
    RejectedError,
    SessionClosedError,
)
from agentjobs_async.testing import Emulator, FaultPlan
from tests.contract.children import run_child
from tests.contract.sockets import full_listener, silent_listener
from tests.contract.tables import GOOD_CREATES, UNSURE_CREATES, is_rejection

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
        return result.outcome, result

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


@pytest.mark.parametrize("fault", GOOD_CREATES)
async def test_created(fault: str) -> None:
    """A good job under a 2xx, whatever its status and however it comes, is a created one."""
    async with served(fault) as (emulator, session, claims):
        assert await claims.of(session) is CreateOutcome.CREATED
    assert (emulator.agents_started, len(emulator.requests)) == ({PROMPT: 1}, 1)
    assert claims.hooked() == [CreateOutcome.CREATED]


@pytest.mark.parametrize("agent", ["yes", "no"])
@pytest.mark.parametrize("fault", UNSURE_CREATES)
async def test_unknown(fault: str, agent: str) -> None:
    """What leaves it open whether an agent was started is sent once and ends as unknown, whether one was or not."""
    async with served(f"{fault} agent={agent}") as (emulator, session, claims):
        assert await claims.of(session) is CreateOutcome.UNKNOWN
    assert emulator.agents_started == ({PROMPT: 1} if agent == "yes" else {})
    assert len(emulator.requests) == 1
    assert claims.hooked() == [CreateOutcome.UNKNOWN]


@pytest.mark.parametrize("fault", ["overlong", "surplus", "surplus:bytes", "surplus after=1", "reset:after"])
async def test_too_much(fault: str) -> None:
    """An answer with more behind it is taken or is unknown, never sent again, never the forged one."""
    async with served(fault) as (emulator, session, claims):
        outcome, result = await claims.made(session)
        await asyncio.sleep(2)
        assert (await session.create_job("Next")).id == "job_000002"
    assert outcome in {CreateOutcome.CREATED, CreateOutcome.UNKNOWN}
    assert not isinstance(result, AgentJob) or result.id == "job_000001"
    assert emulator.agents_started == {PROMPT: 1, "Next": 1}
    assert len(emulator.requests) == 2


async def test_every_status() -> None:
    """Each of the 900 statuses, all at once, ends as the table says; none is sent twice, but for 429."""
    statuses = range(100, 1000)
    async with served() as (emulator, session, _):
        for status in statuses:
            await emulator.inject(f"{status}", prompt=str(status))
        ends = await asyncio.gather(*(Claims().of(session, str(status)) for status in statuses))
    expected = {status: _expected(status) for status in statuses}
    assert dict(zip(statuses, ends, strict=True)) == expected
    sent = dict.fromkeys(map(str, statuses), 1) | {"429": 2}
    assert {prompt: [r.prompt for r in emulator.requests].count(prompt) for prompt in sent} == sent
    assert max(emulator.agents_started.values()) == 1
    started = {prompt: emulator.agents_started[prompt] for prompt in sent}
    assert {s for s, end in expected.items() if end is CreateOutcome.CREATED and not started[str(s)]} == set()
    assert {s for s, end in expected.items() if end is CreateOutcome.REJECTED and started[str(s)]} == set()


def _expected(status: int) -> CreateOutcome:
    if status == 429:  # met once, and then it goes well
        return CreateOutcome.CREATED
    if is_rejection(status):
        return CreateOutcome.REJECTED
    usable = 200 <= status < 300 and status not in {204, 205}
    return CreateOutcome.CREATED if usable else CreateOutcome.UNKNOWN


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422, 425, 451])
@pytest.mark.parametrize("wish", ["", " retry-after=1"])
async def test_rejected(status: int, wish: str) -> None:
    """A refusal is not sent again, with a Retry-After neither, and started nothing."""
    async with served(f"{status}{wish} forever") as (emulator, session, claims):
        outcome, error = await claims.made(session)
    assert (outcome, emulator.agents_started, len(emulator.requests)) == (CreateOutcome.REJECTED, {}, 1)
    assert claims.hooked() == [CreateOutcome.REJECTED]
    assert getattr(error, "status", None) == status


@pytest.mark.parametrize(
    ("plan", "outcome", "sent"),
    [
        ("429", CreateOutcome.CREATED, 2),
        ("429 retry-after=2", CreateOutcome.CREATED, 2),
        ("429 retry-after=60 then 429 retry-after=date+30", CreateOutcome.CREATED, 3),
        ("429 x5", CreateOutcome.CREATED, 6),
        ("429 then 500", CreateOutcome.UNKNOWN, 2),
        ("429 then reset", CreateOutcome.UNKNOWN, 2),
        ("429 then hang", CreateOutcome.UNKNOWN, 2),
        ("429 then 503 retry-after=1", CreateOutcome.UNKNOWN, 2),
        ("429 then 400", CreateOutcome.REJECTED, 2),
        ("429 then 302", CreateOutcome.REJECTED, 2),
        ("refuse for=5", CreateOutcome.CREATED, 1),
        ("refuse for=5 then 429 then refuse for=5", CreateOutcome.CREATED, 2),
        ("refuse for=5 then close", CreateOutcome.UNKNOWN, 1),
        ("refuse for=5 then 503", CreateOutcome.UNKNOWN, 1),
        ("refuse for=200", CreateOutcome.NOT_SENT, 0),
        ("429 retry-after=61", CreateOutcome.REJECTED, 1),
        ("429 retry-after=99999999999999999999", CreateOutcome.REJECTED, 1),
    ],
)
async def test_sequences(plan: str, outcome: CreateOutcome, sent: int) -> None:
    """What was not sent and what was put off goes again, until something else happens, which stands."""
    async with served(plan) as (emulator, session, claims):
        assert await claims.of(session) is outcome
    assert len(emulator.requests) == sent
    assert claims.hooked() == [outcome]
    started = emulator.agents_started[PROMPT]
    assert started <= 1
    assert outcome is CreateOutcome.UNKNOWN or started == (outcome is CreateOutcome.CREATED)


async def test_put_off_for_ever() -> None:
    """A create that is always put off ends as rejected, with the last answer, within its time."""
    async with served("429 forever") as (emulator, session, claims):
        outcome, error = await claims.made(session, seconds=60)
    assert (outcome, type(error)) == (CreateOutcome.REJECTED, RateLimitedError)
    assert emulator.agents_started == {}
    assert 45 <= claims.elapsed <= 60


async def test_wish_too_long() -> None:
    """A 429 that wishes more patience than there is comes out at once, with the wish."""
    for wish, patience in ((61, 120), (31, 30)):
        async with served(f"429 retry-after={wish} forever") as (emulator, session, claims):
            outcome, error = await claims.made(session, seconds=patience)
        assert (outcome, claims.elapsed, len(emulator.requests)) == (CreateOutcome.REJECTED, 0, 1)
        assert getattr(error, "retry_after", None) == wish


NEVER_CONNECTS: dict[str, Callable[[], Any]] = {
    "a full backlog": lambda: full_listener("http"),
    "silence before TLS": lambda: silent_listener("https"),
}


@pytest.mark.parametrize("listener", NEVER_CONNECTS)
@pytest.mark.parametrize("connect", [2.0, 60.0])
async def test_never_connected(listener: str, connect: float) -> None:
    """A connection that is never made ends the create in its time, as not sent."""
    claims = Claims()
    async with (
        NEVER_CONNECTS[listener]() as base_url,
        AgentJobsSession(
            base_url,
            "0123456789",
            project_id="docs",
            timeouts=HttpTimeouts(connect=connect),
            hooks=[claims.events.append],
        ) as session,
    ):
        outcome, error = await claims.made(session, seconds=9)
    assert (outcome, type(error)) == (CreateOutcome.NOT_SENT, NotSentError)
    assert claims.hooked() == [CreateOutcome.NOT_SENT]


async def test_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that no name server knows is tried until the time is up, and nothing was sent."""
    lookups: list[float] = []

    class Awaited(threading.Thread):
        """A thread whose starter waits for its end: virtual time would run on while it works."""

        def start(self) -> None:
            super().start()
            self.join()

    def fail(*_arguments: object, **_options: object) -> None:
        lookups.append(0)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(threading, "Thread", Awaited)
    claims = Claims()
    async with AgentJobsSession("https://service.example", "0123456789", project_id="docs") as session:
        outcome, error = await claims.made(session, seconds=30)
    assert (outcome, getattr(error, "reason", None)) == (CreateOutcome.NOT_SENT, "dns")
    assert len(lookups) > 1


async def test_bad_certificate(server_tls: ssl.SSLContext) -> None:
    """A certificate of an unknown authority ends a create at the first try, as not sent."""
    hellos: list[object] = []
    server_tls.sni_callback = lambda *hello: hellos.append(hello)
    claims = Claims()
    async with (
        silent_listener("https", server_tls) as base_url,
        AgentJobsSession(base_url, "0123456789", project_id="docs") as session,
    ):
        outcome, error = await claims.made(session)
    assert (outcome, getattr(error, "reason", None)) == (CreateOutcome.NOT_SENT, "certificate")
    assert (len(hellos), claims.elapsed) == (1, 0)


def test_no_file_descriptor() -> None:
    """Without a file descriptor a create is not sent, and goes out once when there is one again."""
    said = run_child(
        """
        import asyncio, errno, json, os, resource
        from agentjobs_async import NotSentError
        from agentjobs_async.testing import Emulator, FaultPlan

        def fill():
            taken = []
            try:
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE
            return taken

        async def main():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            async with Emulator() as emulator, emulator.session(project_id="docs") as session:
                taken = fill()
                try:
                    await session.create_job("Lost", timeout=0.3)
                except NotSentError as error:
                    outcome = error.outcome
                late = asyncio.ensure_future(session.create_job("Fix it"))
                await asyncio.sleep(0.3)
                for descriptor in taken:
                    os.close(descriptor)
                await late
                print(json.dumps([outcome, dict(emulator.agents_started), len(emulator.requests)]))

        asyncio.run(main())
        """
    )
    assert json.loads(said) == ["not_sent", {"Fix it": 1}, 1]
    assert errno.EMFILE


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


@pytest.mark.parametrize(
    ("plan", "outcome"),
    [
        ("hang", CreateOutcome.UNKNOWN),
        ("hang:headers", CreateOutcome.UNKNOWN),
        ("hang:body", CreateOutcome.UNKNOWN),
        ("429 retry-after=30", CreateOutcome.REJECTED),
        ("refuse for=100", CreateOutcome.NOT_SENT),
    ],
)
async def test_closed_meanwhile(plan: str, outcome: CreateOutcome) -> None:
    """Closing the session ends a create at once as what it is, and nothing goes out any more."""
    async with served(plan) as (emulator, session, claims):
        creating = asyncio.ensure_future(claims.of(session))
        await asyncio.sleep(5)
        await session.aclose()
        assert creating.done()
        assert await creating is outcome
        sent = len(emulator.requests)
        await asyncio.sleep(300)
        assert len(emulator.requests) == sent
    assert claims.hooked() == [outcome]


async def test_redirects_are_not_followed() -> None:
    """No redirect of any kind takes the prompt or the key to another place."""
    places = ("", " location={base}/v2/agent/docs/job", " location=/v2/agent/docs/job", " location={foreign}/?k={key}")
    faults = [f"{status}{place}" for status in range(300, 309) for place in places]
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
