"""Creates whose service honours an idempotency key: what is repeated, and what settles them."""

import asyncio
import json
from typing import Any

import pytest

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateFailed,
    CreateOutcome,
    CreateOutcomeUnknownError,
    CreateRetried,
    Dialect,
    InvalidInputError,
    NotFoundError,
    NotSentError,
    RateLimitedError,
    RejectedError,
)
from tests.http.test_credentials import Keys
from tests.polled import clock, gaps
from tests.rows import failures_in_turn
from tests.scripted import Reply, Scripted, reply
from tests.until import until

HONOURED = Dialect(idempotency_header="Idempotency-Key", idempotency_seconds=60.0)
CREATED = reply(201, {"id": "job_1", "status": "active"})
BROKEN = Reply(then="reset")
NO_JOB = reply(202, {"accepted": True})
CONFLICT = reply(409, {"error": "at work"})


def sent_keys(server: Scripted) -> list[str | None]:
    return [request.headers.get("idempotency-key") for request in server.requests]


UNKNOWN_THEN_SETTLED: list[list[Reply]] = [
    [BROKEN, CREATED],
    [reply(500), reply(502), reply(408), CREATED],
    [NO_JOB, CREATED],
    [Reply(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{", "fin"), CREATED],
    [BROKEN, CONFLICT, CONFLICT, CREATED],
    [BROKEN, reply(429), reply(429, None, ("Retry-After", "3")), CREATED],
    [reply(503, None, ("Retry-After", "2")), reply(425), CREATED],
    [reply(429), BROKEN, CREATED],
]


@pytest.mark.looptime
async def test_unknown_create_is_settled() -> None:
    """A create whose outcome is unknown is sent again with the same key and bytes, until its job settles it."""

    async def check(replies: list[Reply]) -> None:
        async with Scripted(*replies) as server, server.session(dialect=HONOURED) as session:
            assert (await session.create_job("Fix it")).id == "job_1"
        assert len(server.requests) == len(replies)
        assert len(set(sent_keys(server))) == 1
        assert sent_keys(server)[0]
        assert {request.body for request in server.requests} == {b'{"prompt": "Fix it"}'}

    assert await failures_in_turn(check, *((replies,) for replies in UNKNOWN_THEN_SETTLED)) == {}


ENDS: list[tuple[list[Reply], type[AgentJobsError]]] = [
    *(([BROKEN, reply(status, {"error": "no"})], RejectedError) for status in (400, 422, 301)),
    ([BROKEN, reply(404)], NotFoundError),
    ([BROKEN, reply(401)], AuthError),
    ([BROKEN, reply(403)], AuthError),
    ([BROKEN, reply(429, None, ("Retry-After", "3600"))], RateLimitedError),
    ([reply(500), CONFLICT], RejectedError),
    ([BROKEN, reply(429)], RateLimitedError),
]


@pytest.mark.looptime
async def test_nothing_else_settles_it() -> None:
    """Once a POST is unknown, every other end of a repetition leaves it so, and is the cause."""

    async def check(replies: list[Reply], cause: type[AgentJobsError]) -> None:
        events: list[Any] = []
        async with Scripted(*replies) as server:
            async with server.session(dialect=HONOURED, hooks=[events.append]) as session:
                began = clock()
                with pytest.raises(CreateOutcomeUnknownError) as caught:
                    await session.create_job("Fix it", timeout=30)
                assert clock() - began <= 30
        assert caught.value.outcome is CreateOutcome.UNKNOWN
        assert isinstance(caught.value.__cause__, cause)
        assert "a repetition with the same key ended" in str(caught.value)
        (failed,) = (event for event in events if isinstance(event, CreateFailed))
        assert (failed.outcome, failed.tries) == (CreateOutcome.UNKNOWN, len(server.requests))
        assert len(set(sent_keys(server))) == 1

    assert await failures_in_turn(check, *ENDS) == {}


@pytest.mark.looptime
async def test_server_that_is_gone() -> None:
    """A repetition that is not sent leaves the create unknown as well; it is tried again until the time is up."""
    async with Scripted(BROKEN) as server, server.session(dialect=HONOURED) as session:
        creating = asyncio.ensure_future(session.create_job("Fix it", timeout=20))
        await until(lambda: server.requests)
        server._server.close()
        with pytest.raises(CreateOutcomeUnknownError) as caught:
            await creating
    assert isinstance(caught.value.__cause__, NotSentError)
    assert len(server.requests) == 1


@pytest.mark.looptime
async def test_pace() -> None:
    """Repetitions are as far apart as other tries, and no nearer than the server asks."""
    events: list[Any] = []
    replies = [BROKEN, reply(500), reply(503, None, ("Retry-After", "7")), CREATED]
    async with Scripted(*replies) as server:
        async with server.session(dialect=HONOURED, hooks=[events.append]) as session:
            await session.create_job("Fix it")
    assert gaps([request.at for request in server.requests]) == pytest.approx([0.1, 0.2, 7], abs=0.15)
    retried = [event for event in events if isinstance(event, CreateRetried)]
    assert [type(event.error) for event in retried] == [CreateOutcomeUnknownError] * 3


@pytest.mark.looptime
async def test_time_that_the_service_remembers() -> None:
    """Nothing is repeated once the service may have forgotten the key; what is forgotten stays unknown."""
    dialect = Dialect(idempotency_header="Idempotency-Key", idempotency_seconds=10.0)
    async with Scripted(BROKEN) as server, server.session(dialect=dialect) as session:
        with pytest.raises(CreateOutcomeUnknownError):
            await session.create_job("Fix it", timeout=100)
    assert 5 < server.requests[-1].at - server.requests[0].at < 10


async def test_never_without_the_promise() -> None:
    """Without the setting, or with `retry=False`, an unknown create is sent once."""
    for dialect, retry in ((Dialect(), True), (HONOURED, False)):
        async with Scripted(BROKEN, CREATED) as server, server.session(dialect=dialect) as session:
            with pytest.raises(CreateOutcomeUnknownError):
                await session.create_job("Fix it", retry=retry)
        assert len(server.requests) == 1


async def test_each_create_has_its_key() -> None:
    """Two creates of one prompt have two keys, unless the caller names one; a wrong one is refused before any I/O."""
    async with Scripted(CREATED) as server, server.session(dialect=HONOURED) as session:
        await session.create_job("Fix it")
        await session.create_job("Fix it")
        await session.create_job("Fix it", idempotency_key="order-17")
        for wrong in ("", "a b", "ü", "x" * 256, 5):
            with pytest.raises(InvalidInputError, match="idempotency_key must be"):
                await session.create_job("Fix it", idempotency_key=wrong)  # type: ignore[arg-type]  # wrong ones
    keys = sent_keys(server)
    assert (len(keys), len(set(keys)), keys[2]) == (3, 3, "order-17")
    async with Scripted(CREATED) as server, server.session() as session:
        with pytest.raises(InvalidInputError, match="needs a dialect with an idempotency_header"):
            await session.create_job("Fix it", idempotency_key="order-17")
        await session.create_job("Fix it")
    assert sent_keys(server) == [None]


@pytest.mark.looptime
async def test_never_under_another_key() -> None:
    """An unknown create is not repeated once the API key has been replaced: to the service it would be another one."""
    keys = Keys("old-key-12345", "new-key-12345")
    async with Scripted(BROKEN, BROKEN, reply(401), CREATED) as server:
        async with server.session(dialect=HONOURED, api_key=keys) as session:
            creating = asyncio.ensure_future(session.create_job("Fix it"))
            await until(lambda: len(server.requests) == 2)
            await session.get_job("job_1")  # meets the 401, and the new key
            with pytest.raises(CreateOutcomeUnknownError):
                await creating
    posts = [request for request in server.requests if request.line.startswith("POST")]
    assert {request.headers["authorization"] for request in posts} == {"Bearer old-key-12345"}
    assert len(posts) == 2


@pytest.mark.looptime
async def test_refused_key_of_a_first_try() -> None:
    """A 401 before anything is unknown proves that nothing was started, and the new key is used."""
    keys = Keys("old-key-12345", "new-key-12345")
    async with Scripted(reply(401), BROKEN, CREATED) as server:
        async with server.session(dialect=HONOURED, api_key=keys) as session:
            await session.create_job("Fix it")
    assert [request.headers["authorization"][7:10] for request in server.requests] == ["old", "new", "new"]
    assert len(set(sent_keys(server))) == 1


@pytest.mark.looptime
@pytest.mark.parametrize("how", ["cancel", "close", "timeout"])
async def test_cut_between_two_tries(how: str) -> None:
    """A create that is cut after an unknown try is unknown, whatever the last repetition was answered."""
    events: list[Any] = []
    async with Scripted(BROKEN, reply(429, None, ("Retry-After", "20")), CREATED) as server:
        session = server.session(dialect=HONOURED, hooks=[events.append])
        creating = asyncio.ensure_future(session.create_job("Fix it", timeout=10 if how == "timeout" else 60))
        await until(lambda: len(server.requests) == 2)
        await asyncio.sleep(1)
        if how == "cancel":
            creating.cancel()
        elif how == "close":
            await session.aclose()
        with pytest.raises(asyncio.CancelledError if how == "cancel" else CreateOutcomeUnknownError):
            await creating
        await session.aclose()
    (failed,) = (event for event in events if isinstance(event, CreateFailed))
    assert failed.outcome is CreateOutcome.UNKNOWN
    assert len(server.requests) == 2


async def test_extra_is_sent_again() -> None:
    """The extra of a create is made to bytes before its first try: what the caller changes later does not matter."""
    extra: dict[str, Any] = {"tags": ["a"]}
    async with Scripted(reply(429, None, ("Retry-After", "0")), CREATED) as server:
        async with server.session(dialect=HONOURED) as session:
            creating = asyncio.ensure_future(session.create_job("Fix it", extra=extra))
            await until(lambda: server.requests)
            extra["tags"].append("b")
            await creating
    assert [json.loads(request.body) for request in server.requests] == [{"prompt": "Fix it", "tags": ["a"]}] * 2
