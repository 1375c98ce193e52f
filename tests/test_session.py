"""The session: its settings, reading, running, waiting within a budget, closing, and keeping its key to itself."""

import asyncio
import copy
import gc
import inspect
import pickle
import re
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import aiohttp
import attrs
import pytest
import tenacity
from aioresponses import aioresponses
from yarl import URL

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    AuthError,
    CreateFailed,
    CreateOutcome,
    CreateOutcomeUnknownError,
    Dialect,
    HttpTimeouts,
    InvalidInputError,
    JobCreated,
    JobFailedError,
    JobRef,
    JobStatus,
    NotFoundError,
    NotSentError,
    PollBudget,
    PollPolicy,
    ProtocolError,
    RejectedError,
    SessionClosedError,
    WaitEnded,
    WaitStarted,
    WaitTimeoutError,
    __version__,
    wait_for_job,
)
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.web import job_events, sse_events
from tests.polled import REF, clock, let_go
from tests.rows import failures, failures_in_turn
from tests.scripted import KEY, SERVICE, Reply, Scripted, job, session_of

Call = Callable[[AgentJobsSession], Coroutine[Any, Any, object]]


class _Answer(aiohttp.ClientResponse):
    """What aioresponses lacks since aiohttp 3.14."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **({"stream_writer": SimpleNamespace(output_size=0)} | settings))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[aioresponses]:
    monkeypatch.setattr("aioresponses.core.ClientResponse", _Answer)
    with aioresponses() as mocked:
        yield mocked


# The shapes of requests and answers.

HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",
    "Authorization": f"Bearer {KEY}",
    "User-Agent": f"agentjobs-async/{__version__}",
}


async def test_shape_of_a_create(service: aioresponses) -> None:
    """A create is a POST of the prompt; its answer is the job, the whole document in `raw`."""
    document = {
        "id": "job_7",
        "status": "active",
        "source": {"repository": "acme/docs", "ref": "main"},
        "model": "agent-large-1",
        "prLink": None,
        "createdAt": "2025-11-20T18:00:00.000Z",
        "archivedAt": None,
        "new": [1],
    }
    service.post(f"{SERVICE}/v2/agent/docs/job", payload=document, status=201)
    async with session_of() as session:
        created = await session.create_job("Fix it")
    assert (created.ref, created.status, created.model) == (JobRef("docs", "job_7"), "active", "agent-large-1")
    assert created.raw == document
    (call,) = service.requests["POST", URL(f"{SERVICE}/v2/agent/docs/job")]
    assert call.kwargs["data"].decode() == '{"prompt": "Fix it"}'
    assert call.kwargs["headers"] == {**HEADERS, "Content-Type": "application/json"}
    assert call.kwargs["allow_redirects"] is False


async def test_shape_of_a_read(service: aioresponses) -> None:
    """A read is a GET of the path template filled in; a ref and a job bring their own project."""

    async def check(settings: Any, job_of: Any, wanted: str, url: str) -> None:
        service.requests.clear()
        service.get(URL(f"{SERVICE}{url}", encoded=True), payload={"id": wanted, "status": "completed"})
        async with session_of(**settings) as session:
            assert (await session.get_job(job_of)).id == wanted
        ((method, _), (call,)) = next(iter(service.requests.items()))
        assert (method, call.kwargs["headers"]) == ("GET", HEADERS)
        assert call.kwargs["allow_redirects"] is False

    rows = [
        ({}, "job_1", "job_1", "/v2/agent/docs/job/job_1"),
        ({}, JobRef("other", "a/b"), "a/b", "/v2/agent/other/job/a%2Fb"),
        ({}, AgentJob("job_1", "other", "active"), "job_1", "/v2/agent/other/job/job_1"),
        ({"dialect": Dialect(get_path="/jobs?id={job_id}&of={project_id}")}, "a&b", "a&b", "/jobs?id=a%26b&of=docs"),
        (
            {"base_url": f"{SERVICE}/api/", "dialect": Dialect(get_path="/jobs/{job_id}")},
            "job_1",
            "job_1",
            "/api/jobs/job_1",
        ),
    ]
    assert await failures_in_turn(check, *rows) == {}


# Settings.


async def test_missing_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a project anywhere, a call that needs one names all the ways to give it; a full ref needs none."""
    monkeypatch.setenv("AGENTJOBS_PROJECT_ID", "")
    async with Emulator() as emulator, emulator.session() as session:
        for call in (session.create_job, session.get_job, session.run_job):
            with pytest.raises(InvalidInputError, match=r"project_id is missing: .*AGENTJOBS_PROJECT_ID"):
                await call("job_1")
        assert emulator.requests == ()
        with pytest.raises(NotFoundError):
            await session.get_job(REF)


SETTINGS: dict[str, tuple[Any, ...]] = {
    "base_url": ("", "ftp://a.example", "https://u:p@a.example", f"{SERVICE}?q", "http://a.example", 5),
    "api_key": ("", "a b", "Bearer abcdefgh", 5, b"key"),
    "project_id": ("", "..", "a\nb", "x" * 513, 5),
    "dialect": (5, Dialect, {}, "service.toml"),
    "get_job": (5, "get", {}),
    "policy": (5, PollPolicy, {}),
    "budget": (5, PollBudget),
    "timeouts": (5, 30.0, HttpTimeouts),
    "ssl": (False, True, "cert.pem"),
    "proxy": ("", "proxy", "socks5://127.0.0.1", 5),
    "allow_insecure": (None, 1, "yes"),
    "user_agent": ("", " ", "a\r\nX: y", "ü", 5),
    "hooks": ([5], [None], ["print"], [asyncio.sleep], 5, print),
}


def test_settings_that_make_no_sense() -> None:
    """A setting that makes no sense is refused by name when the session is made; the key is never quoted."""

    def check(name: str, value: Any) -> None:
        with pytest.raises(InvalidInputError, match=name.removesuffix("s")) as caught:
            session_of(**{name: value})
        if name == "api_key" and value:
            assert str(value) not in str(caught.value)

    assert failures(check, *((name, value) for name, values in SETTINGS.items() for value in values)) == {}


PROMPTS = ("Fix it", "Fix a/b\nand c", " job_1", "job_1\n", "Fix\u00a0it", "Fix it " * 100)
BAD_TIMEOUTS = (0, -1, True, float("nan"), float("inf"), "5", 10**400)
ARGUMENTS: list[tuple[str, Callable[[AgentJobsSession, Any], Any], tuple[object, ...]]] = [
    ("prompt", lambda s, value: s.create_job(value), ("", " \n", "\ud800", None, b"x")),
    ("project_id", lambda s, value: s.create_job("x", project_id=value), ("", "..", "a\x00", 5)),
    ("timeout", lambda s, value: s.create_job("x", timeout=value), (*BAD_TIMEOUTS, None)),
    ("before_send", lambda s, value: s.create_job("x", before_send=value), (5, asyncio.sleep)),
    ("^label must", lambda s, value: s.create_job("x", label=value), ("", "two\nlines", "x" * 513, 17)),
    ("job", lambda s, value: s.get_job(value), (None, 5, b"job_1", {})),
    ("job_id", lambda s, value: s.get_job(value), ("", ".", "a\x7f", "x" * 513)),
    (r"JobRef.from_token.* JobRef\(", lambda s, value: s.wait_for_job(value), ("docs~.job_1", "a~.b~.c", "~.")),
    ("as tokens do", lambda s, value: s.watch(value), ("docs~.job_1", "a~.")),
    ("create_job", lambda s, value: s.get_job(value), PROMPTS),
    ("create_job", lambda s, value: s.wait_for_job(value), PROMPTS),
    ("create_job", lambda s, value: s.watch(value), PROMPTS),
    ("create_job", lambda s, value: s.as_completed([value]), PROMPTS),
    ("create_job", lambda s, value: s.updates(value), PROMPTS),
    ("create_job", lambda s, value: s.notify(value), PROMPTS),
    ("create_job", lambda s, value: s.estimate(value), PROMPTS),
    ("create_job", lambda s, value: sse_events(s, value, timeout=1), PROMPTS),
    ("create_job", lambda s, value: job_events(s, value, timeout=1), PROMPTS),
    ("job", lambda s, value: s.wait_for_job(value), (None, 5, b"job_1", {})),
    ("timeout", lambda s, value: s.wait_for_job(REF, timeout=value), BAD_TIMEOUTS),
    ("on_update", lambda s, value: s.wait_for_job(REF, on_update=value), (5, asyncio.sleep)),
    ("prompt", lambda s, value: s.run_job(value), (" ",)),
    ("timeout", lambda s, value: s.run_job("x", timeout=value), BAD_TIMEOUTS),
    ("on_update", lambda s, value: s.run_job("x", on_update=value), (5, asyncio.sleep)),
]


async def test_arguments_that_make_no_sense() -> None:
    """An argument that makes no sense is refused by name before anything is sent; a create says that it was not."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:

        async def check(words: str, call: int, value: object) -> None:
            with pytest.raises(InvalidInputError, match=words) as caught:
                await ARGUMENTS[call][1](session, value)
            assert caught.value.outcome in {None, CreateOutcome.NOT_SENT}

        rows = [(row[0], call, value) for call, row in enumerate(ARGUMENTS) for value in row[2]]
        assert await failures_in_turn(check, *rows) == {}
        with pytest.raises(InvalidInputError) as caught:
            await session.create_job("")
        assert caught.value.outcome is CreateOutcome.NOT_SENT
    assert (emulator.requests, emulator.connections) == ((), 0)


async def test_a_prompt_is_no_job() -> None:
    """A prompt passed as a job is not quoted; an id with white space is valid from the service, and in a ref."""
    async with Scripted(job("active", "my job"), job("completed", "my job")) as server, server.session() as session:
        created = await session.create_job("Fix it")
        assert created.ref == JobRef("docs", "my job")
        for target in (created, created.ref):
            assert (await session.wait_for_job(target)).succeeded
        for prompt in ("Fix my bug", "Fix\nmy bug", "Fix my/bug"):
            with pytest.raises(InvalidInputError, match="create_job") as caught:
                await session.get_job(prompt)
            assert "bug" not in str(caught.value)
    assert server.requests[-1].line == "GET /v2/agent/docs/job/my%20job HTTP/1.1"


@pytest.mark.looptime
@pytest.mark.parametrize("own", [False, True])
async def test_label_of_a_job_that_is_waited_for(own: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A job keeps its label in what each way to run, wait and read shows, over HTTP and by a `get_job` of one's own."""
    shown: list[AgentJob] = []
    async with Emulator(script=JobScript(duration=20)) as emulator, emulator.session(project_id="docs") as reader:
        settings = {"get_job": reader.get_job} if own else {}
        async with emulator.session(project_id="docs", **settings) as session:
            shown.append(await session.run_job("Fix it", label="order-17", on_update=shown.append))
            job = await session.create_job("Fix it", label="order-17")
            shown.append(await session.get_job(job))
            async with session.as_completed([job]) as finished, session.updates(job) as changes:
                shown.extend([change async for change in changes])
                shown.extend([result.result() async for result in finished])
            free = await session.create_job("Fix it", label="order-17")
            shown.append(await wait_for_job(free, get_job=reader.get_job, on_update=shown.append))
            assert (await session.get_job(job.ref)).label is None
    assert [found.label for found in shown] == ["order-17"] * 10
    assert sum(found.is_terminal for found in shown) == 6


async def test_plain_http_by_request() -> None:
    """Plain http to another host than loopback is possible when it is asked for, and a proxy may carry it."""
    async with Scripted(job()) as proxy:
        settings = {"base_url": "http://a.example", "allow_insecure": True, "proxy": proxy.base_url, "user_agent": "me"}
        async with session_of(**settings) as session:
            await session.get_job("job_1")
    (request,) = proxy.requests
    assert request.line == "GET http://a.example/v2/agent/docs/job/job_1 HTTP/1.1"
    assert request.headers["user-agent"] == "me"


async def refused(session: AgentJobsSession) -> AgentJob:
    await asyncio.sleep(5)
    return await session.run_job("refused")


async def by_gather(session: AgentJobsSession) -> None:
    await asyncio.gather(*map(session.run_job, "abcd"), refused(session))


async def by_task_group(session: AgentJobsSession) -> None:
    async with asyncio.TaskGroup() as group:
        for call in (*map(session.run_job, "abcd"), refused(session)):
            group.create_task(call)


async def by_timeout(session: AgentJobsSession) -> None:
    async with asyncio.timeout(5):
        await asyncio.gather(*map(session.run_job, "abcd"))


async def by_cancelling(session: AgentJobsSession) -> None:
    calls = [asyncio.ensure_future(session.run_job(prompt)) for prompt in "abcd"]
    await asyncio.sleep(5)
    for call in calls:
        call.cancel()
    for call in calls:
        with pytest.raises(asyncio.CancelledError) as caught:
            await call
        (note,) = caught.value.__notes__
        assert re.match(r"job docs~.job_\w+ was created, and its caller was cut off: it continues", note)


async def by_draining(session: AgentJobsSession) -> None:
    calls = [asyncio.ensure_future(session.run_job(prompt)) for prompt in "abcd"]
    await asyncio.sleep(5)
    await session.drain()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, SessionClosedError) and not hasattr(end, "__notes__") for end in ends)


WAYS_TO_BE_CUT = (by_gather, by_task_group, by_timeout, by_cancelling, by_draining)


@pytest.mark.looptime
async def test_runs_that_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever cuts runs whose jobs were created, the log names each token, and hooks are told how each wait ended."""

    async def check(way: Callable[[AgentJobsSession], Awaitable[None]]) -> None:
        caplog.clear()
        events: list[Any] = []
        async with Emulator(script=JobScript(duration=1_000)) as emulator:
            await emulator.inject("422 on=create", prompt="refused")
            with suppress(RejectedError, ExceptionGroup, TimeoutError):
                async with emulator.session(project_id="docs", hooks=[events.append]) as session:
                    await way(session)
            await let_go()
        tokens = {job.ref.to_token() for job in [event.job for event in events if isinstance(event, JobCreated)]}
        assert len(tokens) == len(emulator.jobs) == 4
        said = [message for message in caplog.messages if "was created, and its caller was cut off" in message]
        assert sorted(message.split()[1] for message in said) == sorted(tokens)
        ends = [event for event in events if isinstance(event, WaitEnded)]
        assert {event.ref.to_token() for event in ends} == tokens
        assert {type(event.error) for event in ends} <= {asyncio.CancelledError, SessionClosedError}
        assert KEY not in caplog.text

    assert await failures_in_turn(check, *WAYS_TO_BE_CUT) == {}


def test_runs_that_are_cut_by_the_end_of_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """At the end of `asyncio.run`, the log names the token of each run that is left."""

    async def main() -> None:
        async with Emulator(script=JobScript(duration=1_000, job_id="job_1")) as emulator:
            created = asyncio.Event()

            def on_event(event: object) -> None:
                if isinstance(event, WaitStarted):
                    created.set()

            session = emulator.session(project_id="docs", hooks=[on_event])
            run = asyncio.ensure_future(session.run_job("Fix it"))
            await created.wait()
            assert not run.done()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the program forgot to close its session
        asyncio.run(main())
        gc.collect()
    assert "job docs~.job_1 was created, and its caller was cut off" in caplog.text


def test_outside_of_asyncio() -> None:
    """Without an event loop of asyncio, each call of a session says so, and sends nothing."""
    session = session_of(hooks=[print])
    calls: list[Call] = [
        lambda s: s.create_job("Fix it"),
        lambda s: s.run_job("Fix it"),
        lambda s: s.get_job(REF),
        lambda s: s.wait_for_job(REF),
        lambda s: s.estimate(REF),
    ]
    for call in calls:
        with pytest.raises(SessionClosedError, match="the session works in a running event loop of asyncio only"):
            call(session).send(None)


def test_made_without_a_loop() -> None:
    """A session is made without a running loop; its first await binds it."""
    session = session_of(base_url="http://127.0.0.1:1")

    async def use() -> None:
        with pytest.raises(NotSentError):
            await session.get_job("job_1")
        await session.aclose()

    asyncio.run(use())
    assert "closed" in repr(session)


# Reading.


async def test_paced_answer_is_a_job() -> None:
    """A job that comes with a Retry-After is a job all the same."""
    async with Scripted(job("active", "job_1", ("Retry-After", "5"))) as server, server.session() as session:
        assert (await session.get_job("job_1")) == AgentJob("job_1", "docs", "active")


@pytest.mark.looptime
async def test_reused_connection_that_the_server_has_closed() -> None:
    """`get_job` finds the job all the same; a wait sends nothing again: its next poll is due soon."""
    closed = Reply(then="fin")
    async with Scripted(job(), closed, job(), job(), closed, job("completed")) as server, server.session() as session:
        await session.get_job("job_1")
        assert (await session.get_job("job_1")).status == "active"
        assert (await session.wait_for_job("job_1")).succeeded
    assert len(server.requests) == 6
    assert server.requests[-1].at - server.requests[-2].at > 1


async def test_own_get_job() -> None:
    """A get-job callable replaces the HTTP read in every call, and what it raises comes out as it is."""
    error = LookupError("mine")

    async def get_job(ref: JobRef) -> dict[str, object]:
        if ref == REF:
            return {"id": ref.job_id, "status": "completed"}
        raise error

    async with Emulator() as emulator, emulator.session(project_id="docs", get_job=get_job) as session:
        assert (await session.get_job("job_1")).succeeded
        assert (await session.wait_for_job("job_1")).succeeded
        for call in (session.get_job, session.wait_for_job):
            with pytest.raises(LookupError) as caught:
                await call("job_2")
            assert caught.value is error
    assert emulator.requests == ()


STATUSES = {"cancelled": JobStatus.FAILED, "queued": JobStatus.ACTIVE, "failed": JobStatus.FAILED}


@pytest.mark.looptime
async def test_other_words_for_a_status(caplog: pytest.LogCaptureFixture) -> None:
    """Words of the service that the user named are one of the four, in creates and polls, and `raw` keeps them."""
    async with Scripted(job("queued"), job("queued"), job("cancelled")) as server:
        async with server.session(dialect=Dialect(statuses=STATUSES)) as session:
            created = await session.create_job("Fix it")
            assert (created.status, created.raw["status"]) == (JobStatus.ACTIVE, "queued")
            ended = await session.wait_for_job(created)
            assert (ended.status, ended.raw["status"]) == (JobStatus.FAILED, "cancelled")
            with pytest.raises(JobFailedError):
                (await session.get_job(ended.ref)).raise_for_status()
    assert caplog.messages == []


async def test_other_words_in_an_own_get_job() -> None:
    """Such words are read in what a get-job callable of the user's gives, be it a job or a document."""

    async def document(ref: JobRef) -> dict[str, object]:
        return {"id": ref.job_id, "status": "cancelled"}

    async def job(ref: JobRef) -> AgentJob:
        return AgentJob(ref.job_id, ref.project_id, "cancelled", raw=await document(ref))

    for get_job in (document, job):
        async with session_of(get_job=get_job, dialect=Dialect(statuses=STATUSES)) as session:
            for call in (session.get_job, session.wait_for_job):
                found = await call("job_1")
                assert (found.status, found.raw["status"]) == (JobStatus.FAILED, "cancelled")


@pytest.mark.looptime
async def test_error_of_an_own_get_job_is_the_same_with_other_words() -> None:
    """An error of a get-job callable of the user's is judged as it was raised, whether or not words are mapped."""
    errors: list[object] = []
    raised = StopIteration("mine")

    def get_job(_ref: JobRef) -> Any:
        raise raised

    def retry(state: Any) -> bool:
        errors.append(state.outcome.exception())
        return True

    for statuses in ({}, STATUSES):
        dialect = Dialect(statuses=statuses)
        async with session_of(get_job=get_job, dialect=dialect, policy=PollPolicy(retry=retry)) as session:
            with pytest.raises(WaitTimeoutError):
                await session.wait_for_job("job_1", timeout=1)
        assert errors
        assert all(error is raised for error in errors)
        errors.clear()


async def test_errors_name_their_job() -> None:
    """What a read or a wait raises says which job it is about, in its text and as a ref."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        await emulator.inject("403 forever")
        for call in (session.get_job, session.wait_for_job):
            with pytest.raises(AuthError, match=r"^job docs~.job_1: HTTP 403") as caught:
                await call("job_1")
            assert caught.value.ref == REF


async def first_update(session: AgentJobsSession) -> AgentJob:
    async with session.updates("job_1") as changes:
        return await anext(changes)


async def first_result(session: AgentJobsSession) -> AgentJob:
    async with session.as_completed(["job_1"]) as finished:
        return (await anext(finished)).result()


async def test_errors_are_freed_with_the_last_reference() -> None:
    """An error that a call has raised does not stay until the garbage collector runs."""
    calls: dict[str, Callable[[AgentJobsSession], Awaitable[object]]] = {
        "get_job": lambda s: s.get_job("job_1"),
        "wait_for_job": lambda s: s.wait_for_job("job_1"),
        "watch": lambda s: s.watch("job_1"),
        "create_job": lambda s: s.create_job("Fix it"),
        "run_job": lambda s: s.run_job("Fix it"),
        "updates": first_update,
        "as_completed": first_result,
    }
    alive = []
    gc.disable()
    try:
        for name, call in calls.items():
            async with Emulator() as emulator:
                async with emulator.session(project_id="docs") as session:
                    await emulator.inject("403 forever")
                    with pytest.raises(AuthError) as caught:
                        await call(session)
                error = weakref.ref(caught.value)
                del caught
                alive += [name] if error() is not None else []
    finally:
        gc.enable()
    assert alive == []


async def test_documents_that_are_no_job() -> None:
    """What is wrong with a document is said by the names of its fields."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        job = await session.create_job("Fix it")
        await emulator.inject("document id=7 status=null on=get")
        with pytest.raises(ProtocolError, match=r"id must be a string, not int .*; status must be a string"):
            await session.get_job(job)


# Running and waiting.


@pytest.mark.looptime
async def test_run_job() -> None:
    """A run creates and waits: `on_update` sees the job as it was created, then each change."""
    seen: list[AgentJob] = []
    async with Emulator(script=JobScript(duration=100)) as emulator, emulator.session() as session:
        ended = await session.run_job("Fix it", project_id="docs", on_update=seen.append)
    assert ended.succeeded
    assert [found.status for found in seen] == ["active", "completed"]
    assert emulator.agents_started == {"Fix it": 1}


@pytest.mark.looptime
async def test_run_job_spans_the_create() -> None:
    """The time of a run spans the create and the wait."""
    async with (
        Emulator(script=JobScript(duration=1000), latency=20) as emulator,
        emulator.session(project_id="docs") as session,
    ):
        for seconds in (30, 500):
            began = clock()
            with pytest.raises(WaitTimeoutError) as caught:
                await session.run_job("Fix it", timeout=seconds)
            assert clock() - began == pytest.approx(seconds, abs=0.01)
            assert caught.value.elapsed == pytest.approx(seconds - 20, abs=0.01)


@pytest.mark.looptime
async def test_run_job_whose_create_hangs() -> None:
    """The create of a run takes 120 s at the most, and its outcome is on the error."""
    async with Scripted(Reply(then="hang")) as server, server.session() as session:
        for seconds, cut in ((30, 30), (500, 120), (None, 120)):
            began = clock()
            with pytest.raises(CreateOutcomeUnknownError, match=f"no usable answer within {cut} s") as caught:
                await session.run_job("Fix it", timeout=seconds)
            assert clock() - began == pytest.approx(cut)
            assert caught.value.outcome is CreateOutcome.UNKNOWN


@pytest.mark.looptime
async def test_waiting_for_a_slot_is_no_slow_server() -> None:
    """With one slot for 50 waits, none takes its turn for a timeout of the request."""
    settings: dict[str, Any] = {"budget": PollBudget(in_flight=1), "timeouts": HttpTimeouts(request=2)}
    events: list[object] = []
    async with (
        Emulator(script=JobScript(duration=1), latency=1) as emulator,
        emulator.session(project_id="docs", hooks=[events.append], **settings) as session,
    ):
        created = [await session.create_job(f"Fix {n}") for n in range(50)]
        ended = await asyncio.gather(*(session.wait_for_job(one) for one in created))
    assert all(one.succeeded for one in ended)
    reads = [request.at for request in emulator.requests if request.method == "GET"]
    assert all(later - earlier >= 0.999 for earlier, later in pairwise(reads))
    assert not [event for event in events if type(event).__name__ == "PollFailed"]


# Closing.


async def test_closing_waits_for_the_polite() -> None:
    """Closing lets what it interrupts tidy up for a moment, and is not held up by what swallows its cancellation."""
    released = asyncio.Event()

    async def read(ref: JobRef) -> AgentJob:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                if ref == REF:
                    for _ in range(5):
                        await asyncio.sleep(0)
                    raise
        return AgentJob(ref.job_id, ref.project_id, "completed")

    session = session_of(get_job=read)
    calls = (session.wait_for_job(REF), session.get_job(REF), session.get_job("stubborn"))
    waiting, polite, stubborn = map(asyncio.ensure_future, calls)
    await asyncio.sleep(0)
    await session.aclose()
    left = (waiting.done(), polite.done(), stubborn.done())
    released.set()
    assert left == (True, True, False)
    assert isinstance(waiting.exception(), SessionClosedError)
    assert isinstance(polite.exception(), SessionClosedError)
    assert (await stubborn).succeeded


# The key.


def session_and_parts(session: AgentJobsSession) -> str:
    texts, todo, done = list[str](), [session], set[int]()
    while todo:
        one: Any = todo.pop()
        done.add(id(one))
        names = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
        held = [*getattr(one, "__dict__", {}).values(), *(getattr(one, name, None) for name in names)]
        texts += [repr(one), str(one), *map(repr, held)]
        todo += [part for part in held if type(part).__module__.startswith("agentjobs_async") and id(part) not in done]
    return "\n".join(texts)


async def test_session_never_shows_its_key() -> None:
    """Neither repr, vars, pickle, copy nor asdict of a session and its parts gives the key away."""
    async with session_of() as session:
        assert KEY not in session_and_parts(session)
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never pickled or copied"):
                duplicate(session)
        with pytest.raises(attrs.exceptions.NotAnAttrsClassError):
            attrs.asdict(session)  # type: ignore[arg-type]  # what a careless log formatter does
        assert KEY not in repr(attrs.asdict(session._service._decoder, recurse=False))


async def test_create_that_was_not_awaited() -> None:
    """A coroutine given as a job is refused with what was forgotten, and left behind without a warning."""
    async with session_of() as session:
        for wait in (session.wait_for_job, session.get_job):
            with pytest.raises(InvalidInputError, match="not coroutine: await it first"):
                await wait(session.create_job("Fix it"))  # type: ignore[arg-type]  # the mistake itself


@pytest.mark.parametrize("closed_loop", [False, True])
def test_never_closed(*, closed_loop: bool) -> None:
    """A session that was used and never closed is named in one warning, with the line that made it, and by no other."""

    async def use() -> None:
        async with Emulator(script=JobScript(duration=0)) as emulator:
            settings: dict[str, Any] = {"project_id": "docs", "policy": PollPolicy(wait=tenacity.wait_fixed(0.01))}
            session = AgentJobsSession(emulator.base_url, emulator.api_key, **settings)  # the line it names
            await session.wait_for_job(await session.create_job("write"))
            if not closed_loop:
                del session
                gc.collect()
                await asyncio.sleep(0)
                assert messages(recorded) == [f"{made} was never closed: use async with, or aclose()"]

    code = use.__code__
    lines, first = inspect.getsourcelines(code)
    line = first + next(number for number, text in enumerate(lines) if "the line it names" in text)
    made = f"AgentJobsSession made at {__file__}:{line}"
    forget_earlier_tests()
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        asyncio.run(use())
        gc.collect()
    assert messages(recorded) == [f"{made} was never closed: use async with, or aclose()"]
    assert (recorded[0].filename, recorded[0].lineno, recorded[0].category) == (__file__, line, ResourceWarning)


def forget_earlier_tests() -> None:
    """Collect what earlier tests have left, without the warnings that this may give."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def messages(recorded: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in recorded]


async def test_closed_or_unused_sessions_warn_of_nothing() -> None:
    """A session that was closed, or never used, is deleted without a warning."""
    forget_earlier_tests()
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        AgentJobsSession(SERVICE, KEY)
        async with Emulator() as emulator, emulator.session(project_id="docs") as session:
            await session.create_job("write")
        del session
        gc.collect()
    assert messages(recorded) == []


class Keeper:
    """A hook that keeps each event, with the request in whose context it came."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.outcomes: list[CreateOutcome] = []

    def __call__(self, event: object) -> None:
        self.events.append((type(event).__name__, REQUEST.get()))
        if isinstance(event, CreateFailed):
            self.outcomes.append(event.outcome)


REQUEST: ContextVar[str] = ContextVar("request", default="none")


@pytest.mark.looptime
async def test_create_that_outlives_its_caller() -> None:
    """With `finish`, a cancelled caller leaves at once; its hook gets the job in its context; drain waits for it."""
    for call in (AgentJobsSession.create_job, AgentJobsSession.run_job):
        keeper = Keeper()
        async with Emulator(latency=2.0) as emulator, emulator.session(project_id="docs", hooks=[keeper]) as session:
            request = Context()
            request.run(REQUEST.set, "request-1")
            caller = asyncio.create_task(call(session, "Hello", on_cancel="finish"), context=request)
            await asyncio.sleep(0.5)
            began = clock()
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert clock() - began < 0.1
            assert keeper.events == []
            await session.drain()
            assert keeper.events == [("JobCreated", "request-1")]
            assert emulator.agents_started == {"Hello": 1}


@pytest.mark.looptime
async def test_create_that_outlives_its_caller_is_cut_by_closing() -> None:
    """Closing ends such a create as any other: its outcome is unknown, and no task is left."""
    keeper = Keeper()
    async with Emulator(latency=2.0) as emulator:
        async with emulator.session(project_id="docs", hooks=[keeper]) as session:
            before = asyncio.all_tasks()
            caller = asyncio.create_task(session.create_job("Hello", on_cancel="finish"))
            await asyncio.sleep(0.5)
            caller.cancel()
            await asyncio.wait([caller])
        assert [name for name, _ in keeper.events] == ["CreateFailed"]
        assert not [task for task in asyncio.all_tasks() - before if "create" in repr(task.get_coro())]


@pytest.mark.parametrize(("leave", "event"), [("drain", "JobCreated"), ("aclose", "CreateFailed")])
async def test_create_that_was_just_begun_when_its_session_is_left(leave: str, event: str) -> None:
    """A create begun in the iteration in which its session is left: drain awaits it, aclose sends nothing."""
    keeper = Keeper()
    async with Emulator() as emulator, emulator.session(project_id="docs", hooks=[keeper]) as session:
        caller = asyncio.create_task(session.create_job("Hello", on_cancel="finish"))
        await asyncio.sleep(0)
        caller.cancel()
        await getattr(session, leave)()
        assert [name for name, _ in keeper.events] == [event]
        assert emulator.agents_started == ({"Hello": 1} if leave == "drain" else {})
        assert keeper.outcomes == ([] if leave == "drain" else [CreateOutcome.NOT_SENT])


async def test_create_that_is_not_cancelled() -> None:
    """With `finish`, a create that is not cancelled returns its job and raises its error as any other."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        assert (await session.create_job("Hello", on_cancel="finish")).status is JobStatus.ACTIVE
        await emulator.inject("422", prompt="Bye")
        with pytest.raises(RejectedError):
            await session.create_job("Bye", on_cancel="finish")
        with pytest.raises(InvalidInputError, match="on_cancel must be"):
            await session.create_job("Hello", on_cancel="wait")  # type: ignore[arg-type]  # what is refused
        assert emulator.agents_started == {"Hello": 1}
