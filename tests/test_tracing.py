"""Spans and metrics of OpenTelemetry, as its SDK exports them."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context as contexts
from opentelemetry.instrumentation.aiohttp_client import AioHttpClientInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, SamplingResult
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, Tracer, get_current_span

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    CreateOutcomeUnknownError,
    Event,
    InvalidInputError,
    JobFailedError,
    JobPolled,
    JobRef,
    JobTracker,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    TransportError,
)
from agentjobs_async.batch import BatchItem, Journal, Outcome, State, run_batch
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.tracing import OpenTelemetryHook
from tests.polled import REF, Polled, every
from tests.scripted import Reply, Scripted, job, reply
from tests.until import until

PATIENT = reply(429, None, ("Retry-After", "0"))


class Telemetry:
    """The SDK with its exporters in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        self.tracer: Tracer = self.tracers.get_tracer("the application")

    def hook(self, **settings: Any) -> OpenTelemetryHook:
        return OpenTelemetryHook(self.tracers, self.meters, **settings)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """Return the ended spans of a name, in the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if name in (None, span.name)]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Return the points of each metric: labels, and the number of values or the value."""
        data = self._reader.get_metrics_data()
        metrics = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        return {
            metric.name: [
                (dict(point.attributes or {}), point.count if hasattr(point, "count") else point.value)
                for point in metric.data.data_points
            ]
            for metric in metrics
        }


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def instrumented(telemetry: Telemetry) -> Iterator[None]:
    """The instrumentation of aiohttp that an application has installed."""
    instrumentor = AioHttpClientInstrumentor()
    instrumentor.instrument(tracer_provider=telemetry.tracers)
    yield
    instrumentor.uninstrument()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: Any) -> int:
    number: int = span.get_span_context().span_id
    return number


def notes_of(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


@pytest.mark.looptime
async def test_thousand_waits(telemetry: Telemetry) -> None:
    """A thousand waits of twenty polls are a thousand spans, each below that of its own request."""
    polls: Counter[JobRef] = Counter()

    async def get_job(ref: JobRef) -> AgentJob:
        polls[ref] += 1
        return AgentJob(ref.job_id, ref.project_id, "completed" if polls[ref] == 20 else "active")

    async with JobTracker(get_job, policy=every(2), hooks=[telemetry.hook()]) as tracker:

        async def request(number: int) -> None:
            with telemetry.tracer.start_as_current_span(f"request {number}"):
                await tracker.wait_for_job(JobRef("docs", f"job {number}"))

        await asyncio.gather(*(request(number) for number in range(1000)))
    assert len(telemetry.spans()) == 2000
    requests = {id_of(span): span.name for span in telemetry.spans() if span.name != "wait_for_job"}
    for span in telemetry.spans("wait_for_job"):
        number = requests.pop(parent_of(span) or 0).removeprefix("request ")
        assert (span.attributes or {})["agentjobs.job.id"] == f"docs~.job~20{number}"
        assert (span.attributes or {})["agentjobs.polls"] == 20
    assert requests == {}
    assert telemetry.metrics()["agentjobs.polls"] == [({}, 20_000)]


@pytest.mark.looptime  # the job must be seen at work
@pytest.mark.usefixtures("instrumented")
async def test_tree_of_a_run(telemetry: Telemetry) -> None:
    """`run_job` is the parent of its create and its wait; the instrumented client sees the create and no poll."""
    async with (
        Emulator(script=JobScript(duration=0.1)) as emulator,
        emulator.session(project_id="docs", policy=every(0.02), hooks=[telemetry.hook()]) as session,
    ):
        with telemetry.tracer.start_as_current_span("request") as request:
            done = await session.run_job("Fix it", label="order-17")
            assert get_current_span() is request
    run, create, wait = (telemetry.span(name) for name in ("run_job", "create_job", "wait_for_job"))
    assert [parent_of(span) for span in (run, create, wait, telemetry.span("POST"))] == [
        *(id_of(request), id_of(run), id_of(run)),
        id_of(create),
    ]
    assert [span.kind for span in (run, create, wait)] == [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.CLIENT]
    assert telemetry.spans("GET") == []
    assert {span.status.status_code for span in telemetry.spans()} == {StatusCode.UNSET}
    call = {"gen_ai.operation.name": "invoke_agent", "agentjobs.project.id": "docs", "agentjobs.label": "order-17"}
    named = {"agentjobs.job.id": done.ref.to_token()}
    assert dict(run.attributes or {}) == {**call, **named, "agentjobs.job.status": "completed"}
    assert dict(create.attributes or {}) == {
        **call,
        **named,
        "server.address": "127.0.0.1",
        "agentjobs.create.outcome": "created",
        "agentjobs.job.status": "active",
    }
    attributes: dict[str, Any] = dict(wait.attributes or {})
    assert 0 < attributes.pop("agentjobs.wait.lateness") < 60
    assert attributes.pop("agentjobs.polls") > 1
    assert attributes == {
        **named,
        "agentjobs.project.id": "docs",
        "agentjobs.label": "order-17",
        "agentjobs.job.status": "completed",
        "agentjobs.wait.outcome": "completed",
        "agentjobs.wait.shared": False,
        "server.address": "127.0.0.1",
    }
    assert notes_of(wait) == ["status"]
    values = [value for span in telemetry.spans() for value in (span.attributes or {}).values()]
    assert {type(value) for value in values} <= {str, int, float, bool}
    assert "Fix it" not in repr(values)


async def test_repeated_create(telemetry: Telemetry) -> None:
    """The tries of a create are counted in its one span."""
    async with Scripted(PATIENT, PATIENT, job()) as server, server.session(hooks=[telemetry.hook()]) as session:
        await session.create_job("Fix it")
    create = telemetry.span("create_job")
    assert (create.attributes or {})["http.request.resend_count"] == 2
    assert create.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("answer", "error", "outcome", "status"),
    [
        (reply(400, {"error": "secret words"}), RejectedError, "rejected", 400),
        (reply(502), CreateOutcomeUnknownError, "unknown", 502),
        (Reply(then="reset"), CreateOutcomeUnknownError, "unknown", None),
    ],
)
async def test_failed_create(
    telemetry: Telemetry, answer: Reply, error: type[Exception], outcome: str, status: int | None
) -> None:
    """A create that fails is an error of its span and of `run_job`, by the error's class and the response's status."""
    async with Scripted(answer) as server, server.session(hooks=[telemetry.hook()]) as session:
        with pytest.raises(error):
            await session.run_job("Fix it")
    for name in ("create_job", "run_job"):
        span = telemetry.span(name)
        attributes = dict(span.attributes or {})
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, error.__name__)
        assert (attributes["error.type"], attributes.get("http.response.status_code")) == (error.__name__, status)
        assert "secret" not in str(span.to_json())
    assert (telemetry.span("create_job").attributes or {})["agentjobs.create.outcome"] == outcome
    assert telemetry.metrics()["agentjobs.create.duration"] == [({"outcome": outcome, "error.type": error.__name__}, 1)]


async def test_failed_job_is_no_error(telemetry: Telemetry) -> None:
    """A job that failed is a result, as `wait_for_job` returns it."""
    async with Scripted(job("failed")) as server, server.session(hooks=[telemetry.hook()]) as session:
        ended = await session.wait_for_job("job_1")
    with pytest.raises(JobFailedError):
        ended.raise_for_status()
    wait = telemetry.span("wait_for_job")
    assert wait.status.status_code is StatusCode.UNSET
    assert (wait.attributes or {})["agentjobs.wait.outcome"] == "failed"


async def test_failed_wait(telemetry: Telemetry) -> None:
    """Our errors are errors of the wait's span."""
    async with Scripted(reply(404)) as server, server.session(policy=every(1, not_found_grace=0)) as plain:
        tracker = JobTracker(plain.get_job, policy=every(1, not_found_grace=0), hooks=[telemetry.hook()])
        async with tracker:
            with pytest.raises(NotFoundError):
                await tracker.wait_for_job(REF)
    wait = telemetry.span("wait_for_job")
    assert wait.status.status_code is StatusCode.ERROR
    attributes = dict(wait.attributes or {})
    assert (attributes["error.type"], attributes["http.response.status_code"]) == ("NotFoundError", 404)
    assert attributes["agentjobs.wait.outcome"] == "error"
    assert "server.address" not in attributes  # a tracker does not know it


@pytest.mark.looptime
async def test_cancelled_callers(telemetry: Telemetry) -> None:
    """A caller that is cancelled has ended spans without an error, and is back in its own context."""

    async def get_job(ref: JobRef) -> AgentJob:
        return AgentJob(ref.job_id, ref.project_id, "active")

    seen: list[object] = []
    async with Scripted(Reply(then="hang")) as server, server.session(hooks=[telemetry.hook()]) as session:

        async def request() -> None:
            try:
                await session.run_job("Fix it")
            finally:
                seen.append(get_current_span().get_span_context().is_valid)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(request(), 5)
        async with JobTracker(get_job, hooks=[telemetry.hook()]) as tracker:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tracker.wait_for_job(REF), 5)
    assert seen == [False]
    assert [span.name for span in telemetry.spans()] == ["create_job", "run_job", "wait_for_job"]
    assert {span.status.status_code for span in telemetry.spans()} == {StatusCode.UNSET}
    assert (telemetry.span("wait_for_job").attributes or {})["agentjobs.wait.outcome"] == "cancelled"


@pytest.mark.looptime
@pytest.mark.parametrize("asked", [False, True])
async def test_notes_of_trouble(telemetry: Telemetry, asked: bool) -> None:  # noqa: FBT001 - a case of the parameter list
    """An outage and a rate limit are one event each, however many polls they cost; polls are events if asked for."""
    answers: list[Exception | str] = [
        *("active", TransportError("reset"), TransportError("reset"), TransportError("reset"), "active"),
        *(
            TransportError("reset"),
            RateLimitedError(429, "slow"),
            RateLimitedError(429, "slow"),
            TransportError("reset"),
        ),
        *("active", "completed"),
    ]

    async def get_job(ref: JobRef) -> AgentJob:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return AgentJob(ref.job_id, ref.project_id, answer)

    async with JobTracker(get_job, policy=every(2), hooks=[telemetry.hook(polls=asked)]) as tracker:
        await tracker.wait_for_job(REF)
    notes = notes_of(telemetry.span("wait_for_job"))
    troubles = ["unreachable", "unreachable", "rate_limited", "unreachable"]
    assert [name for name in notes if name != "poll"] == [*troubles, "status"]
    assert notes.count("poll") == (11 if asked else 0)
    metrics = telemetry.metrics()
    assert metrics.get("agentjobs.poll.duration") == ([({}, 11)] if asked else None)
    counts = {labels.get("error.type"): count for labels, count in metrics["agentjobs.polls"]}
    assert counts == {None: 4, "TransportError": 5, "RateLimitedError": 2}


@pytest.mark.looptime
async def test_wait_that_outlives_its_request(telemetry: Telemetry) -> None:
    """A wait that ends after the span around it is a trace of its own, linked to that span."""
    release = asyncio.Event()

    async def get_job(ref: JobRef) -> AgentJob:
        await release.wait()
        return AgentJob(ref.job_id, ref.project_id, "completed")

    async with JobTracker(get_job, hooks=[telemetry.hook()]) as tracker:
        with telemetry.tracer.start_as_current_span("request") as request:
            watch = tracker.watch(REF)
        release.set()
        await watch
    wait = telemetry.span("wait_for_job")
    assert wait.parent is None
    assert [link.context for link in wait.links] == [request.get_span_context()]


@pytest.mark.looptime
async def test_jobs_of_one_name(telemetry: Telemetry) -> None:
    """What happens to a job is not told of a job of the same name in another session."""
    hook = telemetry.hook()
    trackers = [
        JobTracker(Polled(*steps, "active", "completed"), policy=every(2), hooks=[hook])
        for steps in ((), (TransportError("reset"),))
    ]
    async with trackers[0], trackers[1]:
        await asyncio.gather(*(tracker.wait_for_job(REF) for tracker in trackers))
    notes = [notes_of(span) for span in telemetry.spans("wait_for_job")]
    assert sorted(notes) == [["status"], ["unreachable", "status"]]


async def test_shared_wait(telemetry: Telemetry) -> None:
    """Waits that share the polls of a job say so."""
    async with (
        Emulator(script=JobScript(duration=0.2)) as emulator,
        emulator.session(project_id="docs", policy=every(0.05), hooks=[telemetry.hook()]) as session,
    ):
        created = await session.create_job("Fix it")
        await asyncio.gather(session.wait_for_job(created), session.wait_for_job(created))
    assert [(span.attributes or {})["agentjobs.wait.shared"] for span in telemetry.spans("wait_for_job")] == [True] * 2


async def test_two_hooks(telemetry: Telemetry) -> None:
    """Two hooks on one session each make a span of each call, and metrics, as their own settings say."""
    others = Telemetry()
    hooks = [telemetry.hook(), others.hook(projects=True, content=True)]
    async with Scripted(reply(400, "secret words")) as server, server.session(hooks=hooks) as session:
        before = contexts.get_current()
        for _ in range(2):
            with pytest.raises(RejectedError):
                await session.create_job("Fix it")
        assert contexts.get_current() == before
    assert [len(each.spans("create_job")) for each in (telemetry, others)] == [2, 2]
    assert ["secret words" in span.to_json() for each in (telemetry, others) for span in each.spans()] == [
        *(False, False),
        *(True, True),
    ]
    labels = {"outcome": "rejected", "error.type": "RejectedError"}
    assert telemetry.metrics()["agentjobs.create.duration"] == [(labels, 2)]
    assert others.metrics()["agentjobs.create.duration"] == [({**labels, "project": "docs"}, 2)]
    assert [parent_of(span) for span in telemetry.spans()] == [None, None]


async def test_failing_provider(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    """A span that can't be started is logged, and costs nothing else: other spans, metrics, the job, memory."""

    class Failing(Sampler):
        def should_sample(self, *given: Any, **named: Any) -> SamplingResult:
            if given[2] != "run_job":
                raise ZeroDivisionError
            return ALWAYS_ON.should_sample(*given, **named)

        def get_description(self) -> str:
            return "fails"

    telemetry.tracers.sampler = Failing()
    hook = telemetry.hook()
    async with Scripted(job(), job("completed")) as server, server.session(hooks=[hook]) as session:
        before = contexts.get_current()
        assert (await session.run_job("Fix it")).succeeded
        assert contexts.get_current() == before
    assert [record.message for record in caplog.records if "a hook raised" in record.message] != []
    assert [(span.name, (span.attributes or {})["agentjobs.job.status"]) for span in telemetry.spans()] == [
        ("run_job", "completed")
    ]
    assert {"agentjobs.create.duration", "agentjobs.wait.duration"} <= set(telemetry.metrics())
    assert hook._notes._watched == {}


@pytest.mark.parametrize("content", [False, True])
async def test_content(telemetry: Telemetry, content: bool) -> None:  # noqa: FBT001 - a case of the parameter list
    """What servers and agents write, the text of errors and the link, is in spans only if asked for."""
    ended = job("completed", prLink="https://example.com/pull/1", pr_link="https://example.com/pull/1")
    async with (
        Scripted(reply(400, {"error": {"message": "secret words"}}), ended) as server,
        server.session(hooks=[telemetry.hook(content=content)]) as session,
    ):
        with pytest.raises(RejectedError):
            await session.create_job("Fix it")
        await session.wait_for_job("job_1")
    texts = "".join(span.to_json() for span in telemetry.spans())
    assert ("secret words" in texts) == content
    assert ("agentjobs.job.pr_link" in texts) == content
    assert ("https://example.com/pull/1" in texts) == content


async def test_metrics(telemetry: Telemetry) -> None:
    """Creates, polls, waits and jobs are measured; gauges come from what the hook observes while it is open."""
    telemetry.hook()  # it shares the gauges of its provider
    hook = telemetry.hook()
    with pytest.raises(InvalidInputError, match="observe takes"):
        hook.observe(object())
    async with (
        Emulator(script=JobScript(duration=0.1)) as emulator,
        emulator.session(project_id="docs", policy=every(0.02), hooks=[hook]) as session,
    ):
        hook.observe(session)
        await session.run_job("Fix it")
        metrics = telemetry.metrics()
    assert "agentjobs.jobs.watched" not in telemetry.metrics()
    assert metrics["agentjobs.create.duration"] == [({"outcome": "created"}, 1)]
    assert metrics["agentjobs.wait.duration"] == [({"outcome": "completed"}, 1)]
    assert metrics["agentjobs.job.duration"] == [({"status": "completed"}, 1)]
    assert metrics["agentjobs.wait.lateness"] == [({}, 1)]
    assert "agentjobs.poll.duration" not in metrics
    assert metrics["agentjobs.jobs.watched"] == [({}, 0)]
    assert {"agentjobs.jobs.due", "agentjobs.jobs.oldest_unobserved"} <= set(metrics)


@pytest.mark.looptime
@pytest.mark.parametrize("asked", [False, True])
async def test_polls_of_projects(telemetry: Telemetry, asked: bool) -> None:  # noqa: FBT001 - a case of the parameter list
    """Hooks on one provider count into the same counter, each with its labels."""
    hooks = [telemetry.hook(polls=asked), telemetry.hook(polls=asked, projects=True)]
    async with JobTracker(Polled("active", "active", "completed"), policy=every(2), hooks=hooks) as tracker:
        await tracker.wait_for_job(REF)
    assert telemetry.metrics()["agentjobs.polls"] == [({}, 3), ({"project": "docs"}, 3)]


@pytest.mark.looptime
async def test_later_reads(telemetry: Telemetry) -> None:
    """A duration counts once, by the wait that saw the end come, not at each later read of the job."""
    statuses = ["completed", "completed", "active", "completed", "completed"]
    answers = [job(status, createdAt="2026-01-01T00:00:00Z") for status in statuses]
    async with (
        Scripted(job(), *answers) as server,
        server.session(policy=every(2), hooks=[telemetry.hook()]) as session,
    ):
        created = await session.create_job("Fix it")
        for target in (created, created, created.ref, created):
            await session.wait_for_job(target)
    metrics = telemetry.metrics()
    names = ("agentjobs.job.duration", "agentjobs.wait.lateness", "agentjobs.wait.duration")
    assert [count for name in names for _, count in metrics[name]] == [2, 2, 2]


async def test_a_resumed_item_is_linked_to_its_create(telemetry: Telemetry, tmp_path: Path) -> None:
    """A run that continues with the jobs of an earlier run links each wait to the span that created its job."""
    items = [BatchItem(f"k{number}", f"p{number}") for number in range(3)]
    later = Telemetry()

    def run_of(hook: OpenTelemetryHook, status: str) -> AgentJobsSession:
        async def get_job(ref: JobRef) -> AgentJob:
            return AgentJob(ref.job_id, ref.project_id, status)

        return emulator.session(project_id="docs", policy=every(0.01), get_job=get_job, hooks=[hook])

    async def all_created() -> bool:
        return (await journal.counts())[State.ACTIVE] == len(items)

    async with Emulator() as emulator:
        async with (
            run_of(telemetry.hook(), "active") as session,
            Journal.open(tmp_path / "run.db") as journal,
            run_batch(session, items, journal=journal) as batch,
        ):
            await until(all_created)
        async with (
            run_of(later.hook(), "completed") as session,
            Journal.open(tmp_path / "run.db") as journal,
            run_batch(session, items, journal=journal) as batch,
        ):
            assert [result.outcome async for result in batch] == [Outcome.COMPLETED] * len(items)
    found = {_job_of(wait): [link.context for link in wait.links] for wait in later.spans("wait_for_job")}
    assert found == {_job_of(create): [_remote(create)] for create in telemetry.spans("create_job")}
    assert all(not wait.links for wait in telemetry.spans("wait_for_job"))
    assert not later.spans("create_job")


async def test_a_durable_job_is_linked_to_its_create(telemetry: Telemetry, tmp_path: Path) -> None:
    """The wait for a durable job is linked to its create; creates without spans take no other's for theirs."""
    async with (
        Emulator() as emulator,
        emulator.session(project_id="docs", policy=every(0.01), hooks=[telemetry.hook()]) as session,
        emulator.session(project_id="docs", policy=every(0.01)) as untraced,
        Journal.open(tmp_path / "run.db") as journal,
    ):
        ended = asyncio.Event()
        async with DurableJobs(session, journal, on_end=lambda *_: ended.set()) as jobs:
            await jobs.submit("durable", "Fix it")
            await ended.wait()  # its end is in the journal: the batch below does not wait for it
        await session.create_job("Fix it")
        async with run_batch(untraced, [BatchItem("batch", "Fix it")], journal=journal) as batch:
            assert [result.outcome async for result in batch] == [Outcome.COMPLETED]
        create, _ = telemetry.spans("create_job")
        assert [link.context for link in telemetry.span("wait_for_job").links] == [_remote(create)]
        assert [row.traceparent is None async for row in journal.rows()] == [False, True]


def _job_of(span: ReadableSpan) -> object:
    return (span.attributes or {})["agentjobs.job.id"]


def _remote(span: ReadableSpan) -> SpanContext:
    """Return the context of a span as another process knows it."""
    context = span.get_span_context()
    assert context is not None
    return SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=context.trace_flags)


async def test_hook_derived_from_it(telemetry: Telemetry) -> None:
    """A hook that derives from it gets each poll as an event, as any hook does."""
    seen: list[type] = []

    class Derived(OpenTelemetryHook):
        def __call__(self, event: Event, /) -> None:
            seen.append(type(event))
            super().__call__(event)

    hook = Derived(telemetry.tracers, telemetry.meters)
    async with JobTracker(Polled("active", "active", "completed"), policy=every(0.001), hooks=[hook]) as tracker:
        await tracker.wait_for_job(REF)
    assert seen.count(JobPolled) == 3
