"""The key is in no sink, whatever breaks, whatever a server echoes, whatever is cancelled."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import product
from typing import Any, Final

import pytest

from agentjobs_async import AgentJob, AgentJobsSession, HttpTimeouts, InvalidInputError, JobRef, LoggingHook, PollPolicy
from agentjobs_async.testing import Emulator
from tests.contract.sinks import Log, echoes_of, forms_of, leaks
from tests.contract.sockets import full_listener, silent_listener
from tests.contract.tables import BAD_ANSWERS, BREAKS, ONE_OF_EACH, UNSURE_CREATES
from tests.contract.ways import SESSION, Wait, Waiting, met_by
from tests.polled import every
from tests.rows import end_of, failures_in_turn
from tests.scripted import KEY, Reply, Scripted, http

pytestmark = pytest.mark.looptime

ECHO: Final = "{key} {key:base64} {key:percent} {key:json}"
HEADERS: Final = "header.X-Request-Id={key} header.X-Echo={key:base64} header.Set-Cookie=k={key:percent}"

ECHOES: Final = (
    f'401 error="bad key {ECHO}"',
    f'403 error="{ECHO}" retry-after={{key}}',
    f'400 error="{ECHO * 40}"',
    f'404 error="x{ECHO}x"',
    f'429 error="{ECHO}" retry-after=99',
    f'500 error="{ECHO}"',
    f'501 error="{ECHO}" retry-after={{key:base64}}',
    f'503 error="{ECHO}" retry-after=1',
    "302 location={key}",
    "307 location=https://{key}.example/{key}",
    "308 location=https://x.example:{key}/",
    "301 location=/{key:percent}?key={key}",
    "303 location=https://{key:percent}@x.example/",
    "300 location={foreign}/{key}",
    "document id={key}",
    'document id="job {key:base64}"',
    "document id={key:percent}",
    "document status={key}",
    'document status="{key:json}"',
    "document model={key} prLink=https://x.example/{key}",
    "document prLink=https://{key}@x.example/ createdAt={key}",
    'document source.repository="{key:base64}" source.ref={key:percent}',
    'document {key}={key:json} other=["{key}",{"{key:base64}":"{key:percent}"}]',
    "document more={key} status=null",
    "document more={key} id=7",
    "204 header.X-Request-Id={key:json}",
    "600 header.X-Request-Id={key:base64}",
    "ok header.Content-Encoding={key}",
    "ok header.Transfer-Encoding={key}",
    "ok header.Content-Length={key}",
    "ok header.Content-Type={key}",
    "ok header.Date={key} retry-after={key}",
    "ok header.Connection={key}",
    "ok header.Location={key}",
    "short header.X-Request-Id={key}",
    "surplus id={key} model={key}",
)
"""Servers that say the key in every form, in every place."""

FAULTS: Final = tuple(dict.fromkeys((*BREAKS, *UNSURE_CREATES, *BAD_ANSWERS, *ECHOES)))

FORMS: Final = echoes_of(KEY)
RAW: Final = {
    "reason phrase": Reply(http(500).replace(b"Reason", FORMS.encode())),
    "reason phrase of a redirect": Reply(http(302).replace(b"Reason", FORMS.encode())),
    "reason phrase of a job": Reply(http(200, b"{}").replace(b"Reason", FORMS.encode())),
    "status line": Reply(f"HTTP/1.1 {FORMS}\r\n\r\n".encode(), "fin"),
    "no HTTP": Reply(f"{FORMS}\r\n\r\n".encode(), "fin"),
    "header name": Reply(f"HTTP/1.1 200 OK\r\n{FORMS}: x\r\n\r\n".encode(), "fin"),
    "folded header": Reply(f"HTTP/1.1 200 OK\r\nX: y\r\n {FORMS}\r\n\r\n".encode(), "fin"),
    "chunk size": Reply(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{FORMS}\r\n".encode(), "fin"),
    "trailer": Reply(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{FORMS}\r\n\r\n".encode(), "fin"),
    "text": Reply(http(400, FORMS.encode())),
    "text that is no UTF-8": Reply(http(400, b"\xff" + FORMS.encode())),
    "text at length": Reply(http(200, FORMS.encode() * 5000)),
    "nested error": Reply(http(400, json.dumps({"error": {"message": FORMS}}).encode())),
    "bad document": Reply(http(200, b'{"id": "' + FORMS.encode())),
    "document that is no UTF-8": Reply(http(200, b'{"id": "' + FORMS.encode() + b'\xff"}')),
    "a key twice": Reply(http(200, json.dumps({KEY: 1})[:-1].encode() + b"," + json.dumps({KEY: 1})[1:].encode())),
    "a long number": Reply(http(200, b'{"id": ' + b"9" * 5000 + json.dumps(KEY).encode())),
    "switched protocol": Reply(f"HTTP/1.1 101 {FORMS}\r\nUpgrade: {KEY}\r\n\r\n{FORMS}".encode()),
    "hint": Reply(f"HTTP/1.1 103 {FORMS}\r\nLink: {KEY}\r\n\r\n".encode(), "fin"),
}
"""What the emulator can't say: the key in HTTP itself."""

POLICY: Final = every(1, max_bad_answers=2)
SOON: Final = HttpTimeouts(request=3)
Call = Callable[[], Coroutine[Any, Any, object]]
Moments = Sequence[tuple[int, float]]
"""Iterations of the loop, then seconds, after which a call is cancelled."""
EACH_MOMENT: Final[Moments] = ((1, 0.0), (4, 0.0), (7, 0.0), (10, 0.0), (0, 0.7))


async def _ends(calls: list[Call], moments: Moments) -> list[object]:
    """Return how calls end, left alone and cancelled at these moments."""
    ends = [await end_of(call()) for call in calls]
    for call, (iterations, seconds) in product(calls, moments):
        ends.append(await _end_when_cancelled(call, iterations, seconds))
    return ends


def _moments(fault: str) -> Moments:
    """Return when to cancel: no fault shows before its bytes arrive, so a few of all faults meet each moment."""
    return EACH_MOMENT if fault in ONE_OF_EACH or fault in ECHOES[::3] else EACH_MOMENT[-1:]


async def _end_when_cancelled(call: Call, iterations: int, seconds: float) -> object:
    task = asyncio.ensure_future(_end(call))
    for _ in range(iterations):
        await asyncio.sleep(0)
    if seconds:
        await asyncio.sleep(seconds)
    task.cancel()
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def _end(call: Call) -> object:
    return await end_of(call())


async def _swept(
    session: AgentJobsSession, calls: list[Call], events: list[object], moments: Moments = EACH_MOMENT
) -> list[str]:
    with Log() as log:
        ends = await _ends(calls, moments)
        assert moments is not EACH_MOMENT or any(isinstance(end, asyncio.CancelledError) for end in ends)
        ends += [*events, session, vars(session)]
        await session.aclose()
        ends.append(session)
        return leaks(KEY, ends, log)


async def test_creates_and_reads() -> None:
    """Neither a create nor a read, however it ends, leaves the key anywhere."""

    async def check(fault: str) -> None:
        events: list[object] = []
        session = emulator.session(project_id="docs", timeouts=SOON, hooks=[events.append, LoggingHook()])
        created = await session.create_job(fault)
        await emulator.inject(f"{fault} {HEADERS} forever", prompt=fault)
        calls: list[Call] = [lambda: session.create_job(fault, timeout=3), lambda: session.get_job(created)]
        assert await _swept(session, calls, events, _moments(fault)) == []

    async with Emulator(api_key=KEY) as emulator:
        assert await failures_in_turn(check, *FAULTS) == {}
    assert emulator.keys_seen == {f"Bearer {KEY}"}
    assert emulator.foreign.connections == 0


async def test_waits(waiting: Waiting) -> None:
    """No wait, however it ends, leaves the key anywhere."""

    async def check(fault: str) -> None:
        events: list[object] = []
        async with waiting(emulator, **_watched(events)) as (session, wait):
            created = await session.create_job("Fix it")
            await emulator.inject(f"{fault} {HEADERS} forever", job_id=created.id)
            calls: list[Call] = [lambda: wait(created, timeout=2, on_update=events.append)]
            assert await _swept(session, calls, events, _moments(fault)) == []

    async with Emulator(api_key=KEY) as emulator:
        faults = FAULTS if waiting is SESSION else (*met_by(waiting, FAULTS), *ECHOES[::3])
        assert await failures_in_turn(check, *faults) == {}
    assert emulator.foreign.connections == 0


def _watched(events: list[object]) -> dict[str, Any]:
    """Return the settings of a session that tells all it does."""
    return {"policy": POLICY, "timeouts": SOON, "hooks": [events.append, LoggingHook()]}


def _calls(session: AgentJobsSession, wait: Wait) -> list[Call]:
    return [
        lambda: session.create_job("Fix it", timeout=3),
        lambda: session.get_job("job_1"),
        lambda: wait(JobRef("docs", "job_1"), timeout=2),
    ]


async def test_raw_echoes() -> None:
    """A server that says the key within HTTP itself gets it into no sink."""

    async def check(name: str) -> None:
        events: list[object] = []
        async with Scripted(RAW[name]) as server, SESSION(server, **_watched(events)) as (session, wait):
            assert await _swept(session, _calls(session, wait), events) == []

    assert await failures_in_turn(check, *RAW) == {}


async def test_connections_never_made(server_tls: ssl.SSLContext) -> None:
    """A connection that is never made gets the key into no sink."""

    async def check(name: str) -> None:
        events: list[object] = []
        async with servers[name] as base_url, Emulator(api_key=KEY) as emulator:
            settings = {"base_url": base_url, "timeouts": HttpTimeouts(connect=1)}
            async with SESSION(emulator, **_watched(events) | settings) as (session, wait):
                assert await _swept(session, _calls(session, wait), events) == []

    servers = {
        "full backlog": full_listener("https"),
        "silence before TLS": silent_listener("https"),
        "unknown authority": silent_listener("https", server_tls),
        "plain HTTP": _without_tls(),
    }
    assert await failures_in_turn(check, *servers) == {}


@asynccontextmanager
async def _without_tls() -> AsyncIterator[str]:
    async with Scripted(Reply(), greeting=http(400)) as server:
        yield server.base_url.replace("http", "https")


async def test_refused_services(waiting: Waiting) -> None:
    """A service that is down gets the key into no sink, nor does a session that is closed in the middle."""
    events: list[object] = []
    async with Emulator(api_key=KEY) as emulator:
        async with waiting(emulator, hooks=[events.append, LoggingHook()]) as (session, wait), emulator.refusing():
            assert await _swept(session, _calls(session, wait), events) == []
        for fault in ("hang", "hang:body", "429 retry-after=30"):
            await emulator.inject(fault, prompt=fault)
            assert await _closed_meanwhile(emulator, waiting, fault) == []


async def _closed_meanwhile(emulator: Emulator, waiting: Waiting, prompt: str) -> list[str]:
    with Log() as log:
        async with waiting(emulator, hooks=[LoggingHook()]) as (session, wait):
            calls = [
                asyncio.ensure_future(end_of(call))
                for call in (session.create_job(prompt), session.get_job("job_1"), wait(JobRef("docs", "job_1")))
            ]
            await asyncio.sleep(0.01)
            await session.aclose()
        return leaks(KEY, [*await asyncio.gather(*calls), session], log)


def test_refused_settings() -> None:
    """Settings that are refused, the key itself among them, are never quoted with it, nor kept in a frame of ours."""
    refused: list[dict[str, Any]] = [
        {"base_url": "nowhere"},
        {"hooks": [5]},
        {"user_agent": "ü"},
        {"timeouts": 5},
        {"policy": PollPolicy},
        {"dialect": 5},
        {"headers": {"Host": "x"}},
        {"headers": {"X-Token": "tok\r\nen"}},
        {"api_key": f"Bearer {KEY}"},
        {"api_key": f"{KEY}\r\nX: y"},
        {"api_key": f"{KEY} "},
        {"api_key": f"{KEY}é"},
        {"api_key": KEY.encode()},
    ]
    with Log() as log:
        ends = [_refusal(settings) for settings in refused]
    assert {type(end) for end in ends} == {InvalidInputError}
    assert leaks(KEY, ends, log) == []


def _refusal(settings: dict[str, Any]) -> object:
    try:
        return AgentJobsSession(**({"base_url": "https://api.example.com", "api_key": KEY} | settings))
    except InvalidInputError as error:
        return error


async def test_debug_mode(waiting: Waiting) -> None:
    """Asyncio's debug mode, which logs much more, gets the key into no sink either."""
    events: list[object] = []
    asyncio.get_running_loop().set_debug(True)
    async with Scripted(RAW["text"]) as server, waiting(server, **_watched(events)) as (session, wait):
        assert await _swept(session, _calls(session, wait), events) == []


def test_the_sweep_finds_keys() -> None:
    """The sweep itself: a key in a log, in an argument, in a context, in a local or in a field is found."""
    with Log() as log:
        assert leaks(KEY, [AgentJob("x", "docs", "active", raw={"k": [KEY]})], log) != []
        assert leaks(KEY, [ValueError({"headers": {"Authorization": f"Bearer {KEY}"}})], log) != []
        for form in forms_of(KEY):
            assert leaks(KEY, [ValueError(f"x{form}x")], log) != []
        assert leaks(KEY, [_caught(lambda: json.loads(f'{{"{KEY}'))], log) != []
        logging.getLogger("aiohttp.client").debug("a key: %s", KEY)
        assert leaks(KEY, [], log) != []


def _caught(call: Callable[[], object]) -> BaseException:
    """Return the error of a call, with the locals of its frames and what it was raised from, but without its words."""
    try:
        try:
            call()
        finally:
            raise LookupError
    except LookupError as error:
        assert error.__context__ is not None  # noqa: PT017 - what is looked through is made here
        error.__context__.args = ()
        del vars(error.__context__)["doc"]
        return error
