"""The key of the moment and the user's own headers: what is sent, what is asked for, what is masked."""

import asyncio
import contextvars
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

import pytest

from agentjobs_async import (
    AgentJobsSession,
    AuthError,
    CreateOutcome,
    CreateRetried,
    Dialect,
    InvalidInputError,
    KeyRequested,
    NotSentError,
    PollPolicy,
    WaitTimeoutError,
)
from agentjobs_async._dialect.header_fields import SecretText
from agentjobs_async._http.api_key import ApiKey
from tests.decoders import credentials_of
from tests.polled import REF, every
from tests.rows import failures, failures_in_turn
from tests.scripted import KEY, Scripted, job, reply

OLD, NEW, NEWEST = "old-key-12345", "new-key-12345", "newest-key-123"
CREATED = reply(201, {"id": "job_1", "status": "active"})
REFUSED = reply(401, {"error": "who are you"})


def keys_of(server: Scripted) -> list[str]:
    return [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]


class Keys:
    """A callable that returns one key after the other, then the last one again."""

    def __init__(self, *keys: Any) -> None:
        self._keys: Iterator[Any] = iter(keys)
        self._last: Any = None
        self.asked = 0

    def __call__(self) -> Any:
        self.asked += 1
        self._last = next(self._keys, self._last)
        if isinstance(self._last, BaseException):
            raise self._last
        return self._last


def session_of(server: Scripted, keys: Any, **settings: Any) -> AgentJobsSession:
    return server.session(api_key=keys, **settings)


async def test_key_is_asked_for_once() -> None:
    """A callable is asked before the first request, once for all that need it at once, and then not again."""
    keys = Keys(OLD)
    async with Scripted(job()) as server, session_of(server, keys) as session:
        await asyncio.gather(*(session.get_job("job_1") for _ in range(5)), session.create_job("Fix it"))
        await session.get_job("job_1")
    assert (keys.asked, set(keys_of(server)), len(server.requests)) == (1, {OLD}, 7)


async def test_async_callable() -> None:
    """The callable may be async; it runs in no caller's context."""
    user = contextvars.ContextVar[str]("user", default="nobody")
    seen: list[str] = []

    async def key() -> str:
        await asyncio.sleep(0)
        seen.append(user.get())
        return OLD

    user.set("alice")
    async with Scripted(job()) as server, session_of(server, key) as session:
        await session.get_job("job_1")
    assert (seen, keys_of(server)) == (["nobody"], [OLD])


@pytest.mark.parametrize("call", ["create", "read", "wait"])
async def test_key_that_has_changed(call: str) -> None:
    """After a 401 the callable is asked, and the call is repeated with its key; an event tells of it, not the key."""
    keys, events = Keys(OLD, NEW), list[Any]()
    async with Scripted(REFUSED, job("completed")) as server:
        async with session_of(server, keys, hooks=[events.append]) as session:
            calls: dict[str, Callable[[], Any]] = {
                "create": lambda: session.create_job("Fix it"),
                "read": lambda: session.get_job("job_1"),
                "wait": lambda: session.wait_for_job("job_1"),
            }
            assert (await calls[call]()).id == "job_1"
            assert session.mask(f"{OLD} {NEW}") == "*** ***"
    assert (keys.asked, keys_of(server)) == (2, [OLD, NEW])
    assert [event for event in events if isinstance(event, KeyRequested)] == [KeyRequested(changed=True, error=None)]
    assert NEW not in str(events)


async def test_calls_under_way_share_one_asking() -> None:
    """However many calls a 401 meets at once, the callable is asked once for them."""
    keys, events = Keys(OLD, NEW), list[Any]()
    replies = [REFUSED] * 5 + [job()]
    async with Scripted(*replies) as server, session_of(server, keys, hooks=[events.append]) as session:
        await asyncio.gather(*(session.get_job(f"job_{number}") for number in (1, 1, 1, 1, 1)))
    assert (keys.asked, len(events)) == (2, 1)
    assert keys_of(server) == [OLD] * 5 + [NEW] * 5


@pytest.mark.parametrize("retry", [True, False])
async def test_the_same_key_again(*, retry: bool) -> None:
    """Where the callable returns the same key, or there is none, the first 401 stands; each call asks once."""
    for keys, asked in ((Keys(OLD), 2), (OLD, 0)):
        async with Scripted(REFUSED) as server, session_of(server, keys) as session:
            with pytest.raises(AuthError) as caught:
                await session.create_job("Fix it", retry=retry)
            assert caught.value.outcome is CreateOutcome.REJECTED
            if isinstance(keys, Keys):
                assert keys.asked == asked
            with pytest.raises(AuthError):
                await session.wait_for_job("job_1")
        assert keys_of(server) == [OLD, OLD]


async def test_keys_without_end() -> None:
    """A request is sent with three keys at most; a 403 asks for none."""
    keys = Keys(*(f"{number}-abcdefgh" for number in range(9)))
    async with Scripted(*[REFUSED] * 6, reply(403)) as server, session_of(server, keys) as session:
        for call in (session.create_job, session.get_job):
            with pytest.raises(AuthError):
                await call("job_1")
        with pytest.raises(AuthError):
            await session.get_job("job_1")
    assert len(server.requests) == 7


async def test_create_that_is_not_to_be_repeated() -> None:
    """With `retry=False` the first 401 is raised; the callable was asked, so that the next call has its key."""
    keys = Keys(OLD, NEW)
    async with Scripted(REFUSED, CREATED) as server, session_of(server, keys) as session:
        with pytest.raises(AuthError):
            await session.create_job("Fix it", retry=False)
        await session.create_job("Fix it", retry=False)
    assert keys_of(server) == [OLD, NEW]


WRONG = [None, "", "a b", "Bearer abcdefgh", f"{KEY}\n", b"key", 5]


async def test_no_key() -> None:
    """What is no key is an `InvalidInputError`, which does not quote it; nothing is sent, and nothing is repeated."""

    async def check(value: Any) -> None:
        keys = Keys(value)
        async with Scripted(CREATED) as server, session_of(server, keys) as session:
            with pytest.raises(
                InvalidInputError, match="the callable api_key returned no key: api_key must be"
            ) as caught:
                await session.create_job("Fix it")
            assert caught.value.outcome is CreateOutcome.NOT_SENT
            for call in (session.get_job, session.wait_for_job):
                with pytest.raises(InvalidInputError, match="api_key must be"):
                    await call("job_1")
        assert (server.requests, keys.asked) == ([], 3)
        assert not isinstance(value, str) or not value or value.strip() not in str(caught.value)

    assert await failures_in_turn(check, *((value,) for value in WRONG)) == {}


@pytest.mark.looptime
async def test_callable_that_raises() -> None:
    """A create tries again within its time, as after a connection that failed; a wait goes on; a read raises it."""
    errors = [OSError("vault is down"), asyncio.CancelledError()]
    for error in errors:
        keys, events = Keys(error, error, OLD), list[Any]()
        async with Scripted(CREATED) as server, session_of(server, keys, hooks=[events.append]) as session:
            assert (await session.create_job("Fix it")).id == "job_1"
            assert sum(isinstance(event, CreateRetried) for event in events) == 2
        assert (keys.asked, len(server.requests)) == (3, 1)
        keys = Keys(error, error, error, OLD)
        async with Scripted(job("completed")) as server, session_of(server, keys, policy=every(2)) as session:
            with pytest.raises(NotSentError, match="the callable api_key") as caught:
                await session.get_job("job_1")
            assert (caught.value.reason, caught.value.__cause__, caught.value.__context__) == ("key", None, None)
            assert (await session.wait_for_job("job_1", timeout=60)).succeeded


@pytest.mark.looptime
async def test_callable_that_hangs() -> None:
    """A callable that does not answer is bounded by the time of the call, and ends when the session is closed."""

    async def key() -> str:
        await asyncio.get_running_loop().create_future()
        return OLD

    async with Scripted(CREATED) as server:
        session = session_of(server, key, policy=PollPolicy())
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(NotSentError, match="api_key gave no key within 30 s"):
            await session.get_job("job_1")
        assert clock() - began == pytest.approx(30, abs=0.1)
        with pytest.raises(NotSentError) as caught:
            await session.create_job("Fix it", timeout=5)
        assert caught.value.outcome is CreateOutcome.NOT_SENT
        with pytest.raises(WaitTimeoutError):
            await session.wait_for_job("job_1", timeout=5)
        await session.aclose()
        assert len(asyncio.all_tasks()) <= 2  # this test, and the server
    assert server.requests == []


async def test_cancelled_caller_leaves_the_asking_to_others() -> None:
    """A caller that is cancelled while a key is asked for does not take it from the others."""
    asked = asyncio.Event()
    go_on = asyncio.Event()

    async def key() -> str:
        asked.set()
        await go_on.wait()
        return OLD

    async with Scripted(job()) as server, session_of(server, key) as session:
        first = asyncio.ensure_future(session.get_job("job_1"))
        second = asyncio.ensure_future(session.get_job("job_1"))
        await asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go_on.set()
        assert (await second).id == "job_1"


async def test_last_caller_ends_the_asking() -> None:
    """Where all callers are cancelled or cut, the asking is cancelled, and the next call asks anew."""
    left, asked = list[int](), asyncio.Event()

    async def key() -> str:
        asked.set()
        try:
            await asyncio.Future() if not left else None
        finally:
            left.append(1)
        return OLD

    async with Scripted(job()) as server, session_of(server, key) as session:
        calls = [asyncio.ensure_future(session.get_job("job_1")) for _ in range(3)]
        await asked.wait()
        for call in calls:
            call.cancel()
        assert {type(end) for end in await asyncio.gather(*calls, return_exceptions=True)} == {asyncio.CancelledError}
        assert (await session.get_job("job_1")).id == "job_1"
    assert left == [1, 1]


async def test_asking_that_nobody_waits_for_changes_nothing() -> None:
    """A callable that swallows its cancellation sets no key once a later call has asked anew; closing leaves it."""
    go_on, asked, keys = asyncio.Event(), asyncio.Event(), iter([OLD, NEW])

    async def key() -> str:
        mine = next(keys)
        asked.set()
        while mine == OLD and not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()
        return mine

    async with Scripted(job()) as server, session_of(server, key) as session:
        first = asyncio.ensure_future(session.get_job("job_1"))
        await asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await session.get_job("job_1")
        go_on.set()
        await session.get_job("job_1")
    assert keys_of(server) == [NEW, NEW]


async def test_each_caller_has_its_own_error() -> None:
    """What a callable raises is an error of its own for each call that it was asked for: its job, outcome, frames."""

    async def key() -> str:
        await asyncio.sleep(0)
        raise OSError("no vault")

    async with Scripted(job()) as server, session_of(server, key) as session:
        reads = [session.get_job(f"job_{number}") for number in range(3)]
        ends: Any = await asyncio.gather(*reads, session.create_job("x", retry=False), return_exceptions=True)
    assert [end.ref and end.ref.job_id for end in ends] == ["job_0", "job_1", "job_2", None]
    assert [end.outcome for end in ends] == [None, None, None, CreateOutcome.NOT_SENT]
    assert len({id(end) for end in ends}) == 4


async def test_part_of_a_key_in_what_a_callable_raises() -> None:
    """A long text of a callable is masked before it is cut: no part of a key is shown."""
    keys = Keys(OLD, *(ValueError("x" * length + OLD) for length in range(2020, 2048)))
    async with Scripted(REFUSED) as server, session_of(server, keys) as session:
        for _ in range(28):
            with pytest.raises(NotSentError) as caught:
                await session.get_job("job_1")
            assert "old" not in str(caught.value)


async def test_names_of_headers_that_are_names_of_arguments() -> None:
    """A header of a dialect may have any name of a header."""
    for name in ("key", "self", "more", "headers"):
        async with Scripted(job()) as server, server.session(dialect=Dialect(idempotency_header=name)) as session:
            await session.create_job("x", idempotency_key="k-1")
        assert [request.headers[name] for request in server.requests] == ["k-1"]


def test_replaced_keys_stay_masked() -> None:
    """The last 16 keys are masked, and older ones as long as a call is under way with them."""
    credentials = credentials_of(lambda: "unused")
    keys = [ApiKey(f"key-number-{number:04}") for number in range(40)]
    held = keys[3]
    for key in keys:
        credentials._set(key)
    texts = [f"key-number-{number:04}" for number in range(40)]
    del keys, key
    gc.collect()
    credentials._set(ApiKey("key-number-0040"))
    shown = [text for text in texts if credentials.mask(text) == text]
    assert shown == [text for number, text in enumerate(texts) if number < 25 and number != 3]
    assert held.formatted("{key}") not in shown


def test_keys_that_come_again() -> None:
    """A service that goes to and fro between two keys does not push the ones before them out of the last 16."""
    credentials = credentials_of(lambda: "unused")
    for text in ("key-before-000", *("key-number-0001", "key-number-0002") * 20):
        credentials._set(ApiKey(text))
    gc.collect()
    credentials._set(ApiKey("key-number-0003"))
    assert credentials.mask("key-before-000 key-number-0001 key-number-0002 key-number-0003") == "*** *** *** ***"


# Own headers.

HEADERS = {"X-Team": "docs", "X-Tenant": "tenant-0123456", "User-Agent": "mine/1", "Cookie": "a=b; c=d"}


async def test_own_headers() -> None:
    """They are on every request, beside the dialect's own; the key goes where the dialect says."""
    dialect = Dialect(key_header="X-Api-Key", key_format="key {key}")
    async with Scripted(job()) as server, server.session(headers=HEADERS, dialect=dialect) as session:
        await session.create_job("Fix it")
        await session.get_job("job_1")
    for request in server.requests:
        assert {name: request.headers[name.lower()] for name in HEADERS} == HEADERS
        assert request.headers["x-api-key"] == f"key {KEY}"
        assert "authorization" not in request.headers


REFUSED_HEADERS: Sequence[Any] = (
    *(None, 5, ["X-A"], {"": "x"}, {"a b": "x"}, {5: "x"}, {"X-A": 5}, {"X-A": ""}, {"X-A": " x"}, {"X-A": "x\r\ny"}),
    *({"X-A": "ü"}, {"X-A": "a", "x-a": "b"}, {"Authorization": "x"}, {"authorization": "x"}),
    *(
        {name: "x"}
        for name in ("Host", "Content-Type", "content-length", "Connection", "Keep-Alive", "Transfer-Encoding")
    ),
    *({name: "x"} for name in ("TE", "Trailer", "Upgrade", "Expect", "Accept-Encoding", "Range", "If-None-Match")),
    *({name: "x"} for name in ("Proxy-Authorization", "Proxy-X", "Idempotency-Key", "idempotency-key")),
)


def test_refused_headers() -> None:
    """Headers that frame a request, that another setting sets, or whose values break lines are refused, unquoted."""

    def check(headers: Any) -> None:
        with pytest.raises(InvalidInputError, match="header"):
            AgentJobsSession("https://api.example.com", KEY, headers=headers)

    assert failures(check, *((headers,) for headers in REFUSED_HEADERS)) == {}
    with pytest.raises(InvalidInputError, match="headers must not have User-Agent"):
        AgentJobsSession("https://api.example.com", KEY, headers={"User-Agent": "x"}, user_agent="y")
    with pytest.raises(InvalidInputError, match="headers must not have X-Key"):
        AgentJobsSession(
            "https://api.example.com", KEY, headers={"X-Key": "x"}, dialect=Dialect(idempotency_header="x-key")
        )


async def test_own_headers_are_masked() -> None:
    """A value of 8 characters or more is masked wherever the server echoes it; shorter ones and ids are not."""
    headers = {"X-Tenant": "production", "X-Team": "docs", "X-Auth": "Bearer abcdefghij"}
    echo = reply(400, {"error": "production docs abcdefghij"})
    answer = job("active", "production-42", note="production abcdefghij")
    async with Scripted(echo, answer, answer, job("completed", "production-42")) as server:
        async with server.session(headers=headers) as session:
            with pytest.raises(Exception, match=r"\*\*\* docs \*\*\*"):
                await session.create_job("Fix it")
            created = await session.create_job("Fix it")
            assert (created.id, created.raw["id"]) == ("production-42", "production-42")
            assert created.raw["note"] == "*** ***"
            assert (await session.wait_for_job(created)).succeeded
    assert server.requests[-1].line.startswith("GET /v2/agent/docs/job/production-42 ")


async def test_short_secret() -> None:
    """A secret of one character from a variable is masked by itself, and nothing between other characters."""
    answer = job("working", model="gpt 5", note="1 of 2")
    async with Scripted(answer) as server, server.session(headers={"X-Flag": SecretText("1")}) as session:
        found = await session.get_job("job_1")
    assert (found.status, found.model, found.raw["note"]) == ("working", "gpt 5", "*** of 2")


async def test_header_of_an_enumeration() -> None:
    """The value of a header is its text, also where it is a member of an enumeration, whose `str` is another one."""

    class Tenant(str, Enum):  # noqa: UP042 - whose `str` is not its value
        OURS = "tenant-0123456"

    async with Scripted(job()) as server, server.session(headers={"X-Tenant": Tenant.OURS}) as session:
        await session.get_job("job_1")
        assert session.mask("tenant-0123456") == "***"
    assert server.requests[0].headers["x-tenant"] == "tenant-0123456"


def test_key_in_the_address() -> None:
    """A key that a gateway wants in the path is in no repr."""
    session = AgentJobsSession(f"https://a.example/{OLD}", OLD)
    assert repr(session) == "<AgentJobsSession https://a.example/*** project_id=None open>"


async def test_masked_word_of_a_status() -> None:
    """A status is read before anything is masked: a header of the same text does not hide the end of a job."""
    async with Scripted(job("completed")) as server, server.session(headers={"X-State": "completed"}) as session:
        assert (await session.wait_for_job(REF, timeout=5)).succeeded
        await session.create_job("Fix it")
    assert isinstance(server.requests[0].headers, dict)
