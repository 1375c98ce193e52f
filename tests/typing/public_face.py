"""The public face as a user types it. Never run: type checkers alone read it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any, Literal, assert_never, assert_type

import tenacity
from aiohttp import web
from tenacity.wait import wait_base

from agentjobs_async import (
    DEFAULT_RETRY,
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    CreateFailed,
    CreateOutcome,
    CreateOutcomeUnknownError,
    CreateRetried,
    CreateStarted,
    Dialect,
    Estimate,
    Event,
    GetJob,
    History,
    Hook,
    HttpTimeouts,
    InvalidInputError,
    JobChanged,
    JobCreated,
    JobFailedError,
    JobPolled,
    JobRef,
    JobSource,
    JobStatus,
    JobTracker,
    JournalError,
    KeyRequested,
    LoggingHook,
    NotSentError,
    OnCancel,
    OnUpdate,
    PollBudget,
    PollFailed,
    PollPolicy,
    ProtocolError,
    RateLimitedError,
    ResponseError,
    RetryStrategy,
    RunEnded,
    RunStarted,
    SpanHook,
    TrackerStats,
    UserLimitError,
    WaitEnded,
    WaitResult,
    WaitStarted,
    WaitStrategy,
    WaitTimeoutError,
    __version__,
    wait_for_job,
    wait_learned,
)
from agentjobs_async.batch import (
    BatchItem,
    BatchStats,
    BatchWorker,
    InvalidItems,
    Journal,
    JournalRow,
    Limits,
    Outcome,
    Rate,
    State,
    Where,
    move_journal,
    run_batch,
    undo_move,
)
from agentjobs_async.chat import ChatJobs, Place, Send, Texts, slack_text, split_command
from agentjobs_async.durable import (
    DurableEntry,
    DurableJobs,
    DurableStats,
    OnChange,
    OnEnd,
    RetryLater,
    Undeliverable,
    user_key,
)
from agentjobs_async.engines.procrastinate import defer, run_worker, submit
from agentjobs_async.errors import ProtocolReason
from agentjobs_async.prometheus import PrometheusHook
from agentjobs_async.report import board, board_token, write_report
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.tracing import OpenTelemetryHook
from agentjobs_async.web import (
    BodyLimit,
    HttpAnswer,
    Lifespan,
    drain_on_signal,
    http_answer,
    job_events,
    sse_events,
)

SESSION, JOBS = web.AppKey("session", AgentJobsSession), web.AppKey("jobs", DurableJobs)


async def first_screen() -> None:
    async with AgentJobsSession("https://api.example.com", api_key="key", project_id="docs") as session:
        assert_type(session, AgentJobsSession)
        job = await session.create_job("Document the v2 endpoints")
        assert_type(job, AgentJob)
        assert_type(await session.wait_for_job(job), AgentJob)
        assert_type(await session.run_job("Fix the links", project_id="site", timeout=None), AgentJob)


async def many(tracker: JobTracker, session: AgentJobsSession, jobs: list[AgentJob]) -> None:
    async with session.as_completed(jobs, timeout=60) as finished:
        async for result in finished:
            assert_type(result, WaitResult)
            assert_type(result.result(), AgentJob)
    async with tracker.updates(jobs[0]) as changes:
        async for job in changes:
            assert_type(job, AgentJob)
    future = assert_type(tracker.watch(jobs[0]), asyncio.Future[AgentJob])
    assert_type(await future, AgentJob)
    assert_type(await tracker.wait_for_job(jobs[0].ref, timeout=None), AgentJob)
    assert_type(session.stats(), TrackerStats)
    assert_type(session.notify(JobRef.from_token("docs~.job_1")), bool)
    assert_type(tracker.notify(jobs[0]), bool)


async def every_kind_of_target(session: AgentJobsSession, job: AgentJob, ref: JobRef) -> None:
    assert_type(await session.get_job("job_1"), AgentJob)
    assert_type(await session.get_job(ref), AgentJob)
    assert_type(await session.wait_for_job("job_1", timeout=60, on_update=print), AgentJob)
    assert_type(await asyncio.gather(session.wait_for_job(job), session.get_job(job)), tuple[AgentJob, AgentJob])
    await session.aclose()


def every_setting(context: ssl.SSLContext, read: GetJob, hook: Hook) -> AgentJobsSession:
    return AgentJobsSession(
        dialect=every_setting_of_a_dialect(),
        headers={"X-Team": "docs"},
        get_job=read,
        policy=PollPolicy(
            wait=tenacity.wait_exponential(max=60) + tenacity.wait_random(0, 1),
            retry=DEFAULT_RETRY | tenacity.retry_if_exception_type(LookupError),
            not_found_grace=30,
            max_bad_answers=5,
            answer_grace=60,
            max_retry_after=60,
        ),
        budget=PollBudget(in_flight=50, per_second=20),
        timeouts=HttpTimeouts(connect=5, request=20),
        ssl=context,
        proxy="http://proxy.example.com:3128",
        allow_insecure=False,
        user_agent="docs-bot/1.0",
        hooks=[hook, LoggingHook(), on_event, print],
    )


def every_setting_of_a_dialect() -> Dialect:
    return Dialect(
        create_path="/v2/agent/{project_id}/job",
        get_path="/v2/agent/{project_id}/job/{job_id}?full=1",
        key_header="X-Api-Key",
        key_format="{key}",
        body={"input": {"text": "{prompt}", "branch": "{extra.branch}"}, "draft": True},
        fields={"pr_link": "links.0.href"},
        integer_ids=False,
        statuses={"cancelled": JobStatus.FAILED},
        create_refusals={503},
        max_document_bytes=65_536,
        idempotency_header="Idempotency-Key",
        idempotency_seconds=3600,
    )


def keys_that_change() -> None:
    def key() -> str:
        return "secret"

    async def asked_key() -> str:
        return key()

    AgentJobsSession(api_key=key)
    AgentJobsSession(api_key=asked_key, dialect=Dialect.from_toml("service.toml"))
    assert_type(AgentJobsSession.from_toml("service.toml", project_id="docs"), AgentJobsSession)


async def more_fields(session: AgentJobsSession) -> None:
    assert_type(await session.create_job("Fix it", extra={"branch": "main"}, idempotency_key="k"), AgentJob)
    assert_type(await session.run_job("Fix it", extra={"branch": "main"}), AgentJob)


def models(job: AgentJob, ref: JobRef) -> None:
    assert_type(job.id, str)
    assert_type(job.status, JobStatus | str)
    assert_type(job.source, JobSource | None)
    assert_type(job.model, str | None)
    assert_type(job.pr_link, str | None)
    assert_type(job.created_at, datetime | None)
    assert_type(job.archived_at, datetime | None)
    assert_type(job.raw, dict[str, Any])
    assert_type(job.ref, JobRef)
    assert_type((job.is_terminal, job.succeeded), tuple[bool, bool])
    assert_type(job.raise_for_status(), AgentJob)
    assert_type(ref.to_token(), str)
    assert_type(JobRef.from_token("docs~.job_1"), JobRef)
    assert_type(JobRef("docs", "job_1").project_id, str)
    shown: str = __version__
    assert_type({ref: job}, dict[JobRef, AgentJob])
    if job.status in {JobStatus.FAILED, "paused"}:
        assert_type(JobSource("acme/docs", None).repository, str | None)
        print(shown)  # noqa: T201 - a user's program


# Any other way to read a job: a function, a method, an object; of a job or of the service's document.


async def read_job(ref: JobRef) -> AgentJob:
    return AgentJob(ref.job_id, ref.project_id, JobStatus.ACTIVE)


async def read_document(ref: JobRef) -> dict[str, object]:
    return {"id": ref.job_id, "status": "completed"}


async def read_either(ref: JobRef) -> AgentJob | Mapping[str, object]:
    return await read_job(ref) if ref.job_id else await read_document(ref)


class Cache:
    async def read(self, ref: JobRef) -> AgentJob:
        return await read_job(ref)

    def __call__(self, ref: JobRef) -> Awaitable[AgentJob]:
        return self.read(ref)


async def without_a_session(job: AgentJob, ref: JobRef, update: OnUpdate) -> None:
    readers: list[GetJob] = [read_job, read_document, read_either, Cache().read, Cache()]
    for reader in readers:
        assert_type(await wait_for_job(ref, get_job=reader, timeout=600), AgentJob)
    assert_type(
        await wait_for_job(job, get_job=read_job, policy=PollPolicy(), timeout=None, on_update=update), AgentJob
    )


# Policies: any wait strategy and any plain retry strategy.


def own_policy(wait: WaitStrategy, retry: RetryStrategy) -> PollPolicy:
    return PollPolicy(wait=wait, retry=retry)


async def from_a_handler(session: AgentJobsSession, prompt: str, on_cancel: OnCancel) -> AgentJob:
    return await session.run_job(prompt, on_cancel=on_cancel)


class Slower(wait_base):
    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return float(retry_state.attempt_number)


def by_hand(state: tenacity.RetryCallState) -> float:
    return 1.0 if state.attempt_number < 10 else 10.0


def busy(error: BaseException) -> bool:
    return "busy" in str(error)


def policies() -> list[PollPolicy]:
    return [
        PollPolicy(),
        PollPolicy(wait=tenacity.wait_fixed(5)),
        PollPolicy(wait=tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(5))),
        PollPolicy(wait=Slower()),
        PollPolicy(wait=by_hand),
        PollPolicy(retry=tenacity.retry_if_exception(busy)),
        PollPolicy(retry=tenacity.retry_if_exception_type(OSError) | tenacity.retry_if_exception(busy)),
    ]


# Waits that learn, and limits of polls.


async def learning(session: AgentJobsSession, tracker: JobTracker, ref: JobRef) -> list[PollPolicy]:
    history = History()
    history.add(60.0, 65.0)
    assert_type(history.quantile(0.9, age=30.0), float)
    histories: dict[tuple[str, str | None], History] = {("docs", None): history}
    assert_type(await session.estimate("job_1"), Estimate | None)
    if (left := await tracker.estimate(ref)) is not None:
        assert_type((left.p50, left.p90), tuple[float, float])
    assert_type(tracker.learn_from(histories), bool)
    session.limit_polls(5)
    tracker.limit_polls(None)
    PollBudget(per_second="auto")
    return [PollPolicy(wait=wait_learned(given, polls_per_job=20)) for given in (None, history, histories)]


# Hooks: a function or an object; each event by its type.


def on_event(event: Event) -> None:
    match event:
        case JobCreated(job, elapsed):
            assert_type((job, elapsed), tuple[AgentJob, float])
        case CreateRetried(project_id, error, tries, delay):
            assert_type((project_id, error), tuple[str, AgentJobsError])
            assert_type((tries, delay, event.label), tuple[int, float, str | None])
        case CreateFailed(project_id, outcome, error):
            assert_type((project_id, outcome, error), tuple[str, CreateOutcome, BaseException])
        case JobPolled(job, poll_number):
            assert_type((job, poll_number), tuple[AgentJob, int])
        case JobChanged(job, previous):
            assert_type((job, previous), tuple[AgentJob, AgentJob])
        case PollFailed(ref, error, poll_number):
            assert_type((ref, error, poll_number), tuple[JobRef, BaseException, int])
        case WaitStarted(ref):
            assert_type(ref, JobRef)
        case WaitEnded(ref, job, error, polls, elapsed):
            assert_type((ref, job), tuple[JobRef, AgentJob | None])
            assert_type((error, polls, elapsed), tuple[BaseException | None, int, float])
            assert_type((event.lateness, event.shared), tuple[float | None, bool])
        case KeyRequested(changed, error):
            assert_type((changed, error), tuple[bool, AgentJobsError | None])
        case _:
            on_start_or_run(event)


def on_start_or_run(event: CreateStarted | RunStarted | RunEnded) -> None:
    match event:
        case RunStarted(project_id):
            assert_type((project_id, event.label), tuple[str | None, str | None])
        case RunEnded(project_id, job, error, elapsed):
            assert_type((project_id, job), tuple[str | None, AgentJob | None])
            assert_type((error, elapsed), tuple[BaseException | None, float])
        case CreateStarted(project_id, server_address):
            assert_type((project_id, server_address), tuple[str, str])


class Counter:
    def __init__(self) -> None:
        self.polls = 0

    def __call__(self, event: Event, /) -> None:
        self.polls += isinstance(event, JobPolled)


COUNTER: Hook = Counter()


class Spans(Counter):
    makes_spans = True


SPANS: tuple[SpanHook, SpanHook] = Spans(), OpenTelemetryHook()


def exporters(session: AgentJobsSession, tracker: JobTracker) -> list[Hook]:
    traced = OpenTelemetryHook(polls=True, content=False, projects=True)
    traced.observe(session)
    counted = PrometheusHook(projects=True)
    counted.observe(tracker)
    return [traced, counted]


UPDATES: list[Callable[[AgentJob], object]] = [print, lambda job: job.status]


# Errors: each with its data; the words for a reason are a closed set.


def hint(error: NotSentError) -> str:
    match error.reason:
        case "dns" | "refused" | "timeout" | "connect":
            return "is the address right?"
        case "tls" | "certificate" | "proxy":
            return "what stands between?"
        case "withheld":
            return "no longer wanted"
        case "key":
            return "where does the key come from?"
        case _:
            assert_never(error.reason)


def passing(error: JournalError) -> bool:
    return error.reason == "loked"  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]  # no such reason


async def errors(session: AgentJobsSession) -> None:
    try:
        await session.run_job("Document the v2 endpoints")
    except CreateOutcomeUnknownError as error:
        assert_type((error.phase, error.status), tuple[Literal["request", "response"], int | None])
        assert_type((error.project_id, error.sent_at), tuple[str | None, datetime | None])
    except NotSentError as error:
        assert_type(hint(error), str)
    except RateLimitedError as error:
        assert_type(error.retry_after, float | None)
    except ResponseError as error:
        assert_type((error.status, error.request_id, error.excerpt), tuple[int, str | None, str])
    except ProtocolError as error:
        assert_type((error.reason, error.retry_after), tuple[ProtocolReason, float | None])
    except WaitTimeoutError as error:
        assert_type((error.ref, error.last_job), tuple[JobRef, AgentJob | None])
        assert_type((error.last_error, error.polls, error.elapsed), tuple[Exception | None, int, float])
    except JobFailedError as error:
        assert_type(error.job, AgentJob)
    except InvalidInputError as error:
        assert_type(error.reason, Literal["key_taken", "no_such_key", "wrong_state"] | None)
    except AgentJobsError as error:
        assert_type(error.outcome, CreateOutcome | Literal["abandoned"] | None)


# Batches: any iterable of items, results as they come, and the journal's rows, iterated or awaited.


async def endless() -> AsyncGenerator[BatchItem]:
    while True:
        yield BatchItem("page-1", "Document it", project_id="docs", context={"title": "v2", "row": 7})


async def batches(session: AgentJobsSession) -> None:
    async with Journal.open("run.db") as journal, Journal.open(Path("old.db"), read_only=True) as old:
        for source in ([BatchItem("a", "x")], (BatchItem(key, "x") for key in "ab"), endless()):
            async with run_batch(
                session, source, journal=journal, max_active=20, create_rate=Rate(100, per=3600), timeout=None
            ) as results:
                async for result in results:
                    assert_type((result.item, result.outcome), tuple[BatchItem, Outcome])
                    assert_type((result.job, result.error), tuple[AgentJob | None, Exception | None])
                assert_type(results.stats().next_create, float | None)
                assert_type((results.stats().planned, results.stats().total), tuple[int | None, int | None])
                assert_type((results.stats().ends_in, results.stats().decided_by), tuple[float | None, str | None])
        await journal.set_limits(Limits(create_rate=Rate(1, per=36, scope="all"), polls_per_second=50))
        run_batch(
            session,
            [],
            journal=journal,
            max_active="kept",
            create_rate="kept",
            timeout="kept",
            other_service=True,
        )
        await write_report(old, StringIO(), format="csv", prompts=False, all_tries=True)
        live = assert_type(board(old, allow_actions=True, token="16 or more of it", hosts={"::"}), web.Application)
        assert_type(board_token(live), str)
        assert_type(await journal.add([BatchItem("a", "x")], project_id="docs"), InvalidItems)
        assert_type(session.service, str)
        assert_type(await journal.unknown(), list[JournalRow])
        assert_type([row async for row in old.rows(State.FAILED)], list[JournalRow])
        for row in await old.rows():
            assert_type(
                (row.planned_at, row.sent_at, row.created_at), tuple[datetime | None, datetime | None, datetime | None]
            )
            assert_type((row.seen_at, row.ended_at), tuple[datetime | None, datetime | None])
            assert_type((row.polls, row.tries, row.context), tuple[int, int, dict[str, Any] | None])
            assert_type(row.to_dict(), dict[str, Any])
        assert_type(await journal.get("a"), JournalRow | None)
        assert_type(await journal.find("job_1"), JournalRow | None)
        assert_type(await journal.find(JobRef.from_token("web~.job_1")), JournalRow | None)
        await journal.set_context("a", {"page": 7})
        await journal.abandon("d")
        assert_type(await journal.abandon(where=Where(prefix="page-")), tuple[str, ...])
        await journal.resolve("a", job_id="job_1")
        await journal.resolve("c", job_id=JobRef.from_token("web~.job_1"))
        await journal.resolve("b", send_again=True)
        assert_type(await journal.retry("c"), str)
        assert_type(await journal.retry(where=Where(states={"failed"}, text="timed out")), tuple[str, ...])
        assert_type(await journal.retry(where=Where(), max_tries=3), tuple[str, ...])
        assert_type(await old.rows(all_tries=True), list[JournalRow])
        assert_type(await old.rows(where=Where(project="docs", older_than=3600)), list[JournalRow])
        assert_type(old.moved_to, str | None)
    assert_type(await move_journal(Path("run.db"), "postgresql+psycopg://me@db.example/agents"), int)
    await undo_move(Path("run.db"))
    run_batch(session, endless(), journal=journal, limits=Limits(max_active=None), max_active="kept", timeout=None)
    run_batch(session, endless(), journal=journal, create_rate=100)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no Rate


# Many machines: one journal for all workers, and sets of its keys for engines.


async def machines(session: AgentJobsSession) -> None:
    async with Journal.open("postgresql+psycopg://me@db.example/agents", owner_timeout=60) as journal:
        await journal.set_limits(Limits(max_active=200, create_rate=Rate(100, per=3600)))
        assert_type(await journal.limits(), Limits)
        assert_type(await submit([BatchItem("a", "x")], journal=journal, project_id="docs"), InvalidItems)
        assert_type(await defer(["a"], journal=journal, chunk=50), int)
        await run_worker(
            session, journal, chunks=50, timeout=None, until_done=True, stop=asyncio.Event(), on_result=print
        )
        async with BatchWorker(session, journal) as worker:
            assert_type(await worker.run(["a"]), tuple[str, ...])
            assert_type(worker.stats(), BatchStats)


# Web backends and bots.


def answered(error: Exception) -> HttpAnswer:
    answer = http_answer(error)
    assert_type((answer.status, answer.body, answer.headers), tuple[int, dict[str, Any], dict[str, str]])
    return answer


Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


def served(app: Application) -> Application:
    """What frameworks call an application goes in and comes out."""

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[dict[str, AgentJobsSession]]:
        async with AgentJobsSession() as session:
            yield {"session": session}

    return Lifespan(BodyLimit(app, max_bytes=1_000, timeout=5), lifespan)


def in_a_url(ref: JobRef) -> None:
    assert_type(JobRef.from_token(ref.to_token()), JobRef)


async def shut_down(session: AgentJobsSession, tracker: JobTracker) -> None:
    async with drain_on_signal(session, grace=5), drain_on_signal(tracker, pass_on=False) as stopped:
        assert_type(stopped, asyncio.Event)
        assert_type(await session.drain(grace=0), tuple[JobRef, ...])
        await tracker.drain()
        with session.recording():
            await session.create_job("Fix the links")


async def streamed(session: AgentJobsSession, tracker: JobTracker, job: AgentJob, application: web.Application) -> None:
    async for frame in sse_events(session, "job_1", heartbeat=5, last_event_id=None):
        assert_type(frame, bytes)
    async for event in job_events(application[SESSION], job.ref, timeout=None):
        assert_type(event, dict[str, Any])
    async for event in job_events(tracker, job.ref, timeout=None):
        assert_type(event, dict[str, Any])
    async for frame in sse_events(application[JOBS], "key", last_event_id=None):
        assert_type(frame, bytes)
    async for event in job_events(application[JOBS], "key", user="ann"):
        assert_type(event, dict[str, Any])


# Testing one's own code.


async def own_test() -> None:
    async with Emulator() as emulator:
        emulator.script(JobScript(duration=0.05))
        async with emulator.session(project_id="docs") as session:
            assert_type(session, AgentJobsSession)
            assert_type(await session.run_job("Say hello"), AgentJob)


def of_a_user(error: UserLimitError) -> None:
    assert_type((error.most_open, error.retry_after), tuple[int, float])


async def durable(session: AgentJobsSession) -> None:
    """Callbacks are plain or async functions; what is submitted is an entry."""

    def on_change(entry: DurableEntry, job: AgentJob | Exception) -> None:
        assert_type((entry.context["chat"], job), tuple[Any, AgentJob | Exception])

    async def on_end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        assert_type((entry.ref, ended), tuple[JobRef | None, AgentJob | Exception])

    changed: OnChange = on_change
    ended: OnEnd = on_end
    async with (
        Journal.open("bot.db") as journal,
        DurableJobs(session, journal, on_change=changed, on_end=ended) as jobs,
    ):
        assert_type(await jobs.submit("key", "prompt", context={"chat": 7}), DurableEntry)
        assert_type(await jobs.submit("other", "prompt", wait_for_create=False), DurableEntry)
        assert_type(await jobs.get("key"), DurableEntry | None)
        key = assert_type(user_key("alice", "4711"), str)
        assert_type(await jobs.submit(key, "prompt", user="alice", most_open=20), DurableEntry)
        assert_type(await jobs.of_user("alice", last=3), list[DurableEntry])
        assert_type(await jobs.wait(key, timeout=25), DurableEntry)
        assert_type((RetryLater(3).seconds, str(Undeliverable("gone"))), tuple[float, str])
        assert_type(await jobs.retry("key"), None)
        assert_type(jobs.stats(), DurableStats)
        assert_type(await jobs.set_context("key", {"chat": 8}), None)
        assert_type(await jobs.active(Where(prefix="chat-7/")), list[DurableEntry])
        assert_type(await jobs.unfollow("key"), bool)
        await jobs.abandon("key")
        async with jobs.updates("key", timeout=None) as changes:
            async for entry in changes:
                assert_type((entry, entry.is_terminal, entry.to_dict()), tuple[DurableEntry, bool, dict[str, Any]])
        _ = assert_type(jobs.notify("key"), asyncio.Future[bool])
        assert_type(await jobs.notify("key"), bool)
    assert_type(await session.create_job("prompt", on_cancel="finish"), AgentJob)


class German(Texts):
    """A text in other words is a method that is overridden."""

    def planned(self, job: str) -> str:
        return f"{job} ist notiert."


async def chats(session: AgentJobsSession, journal: Journal) -> None:
    """The function of a bot gets a place and a text; commands are answered with texts."""

    async def send(place: Place, text: str) -> None:
        assert_type((place.chat, place.thread, text), tuple[str | int, str | int | None, str])

    sender: Send = send
    async with ChatJobs(sender, journal="bot.db", operators={"42", 43}) as chat:
        assert_type(chat, ChatJobs)
        command, text = assert_type(split_command("/job Fix it"), tuple[str, str])
        assert_type(await chat.answer(Place(50, 7, 103), command, slack_text(text)), str)
        assert_type(await chat.handle(Place("C1", "U7", "1.5", thread="1.2"), "jobs"), None)
        assert_type(chat.jobs, DurableJobs)
    ChatJobs(send, journal=journal, session=session, most_open=None, texts=German(), limits=Limits())
