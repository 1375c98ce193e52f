"""Spans and metrics for OpenTelemetry, made from the events of sessions, trackers and batches. Extra `otel`."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from attrs import frozen

from agentjobs_async._extras import extra_named
from agentjobs_async._version import __version__
from agentjobs_async.errors import describe
from agentjobs_async.telemetry import events
from agentjobs_async.telemetry.attributes import end_attributes, start_attributes
from agentjobs_async.telemetry.links import last_create, resumed_from
from agentjobs_async.telemetry.metrics import (
    GAUGES,
    HISTOGRAMS,
    POLL_DURATION,
    POLLS,
    Gauges,
    Metric,
    label_names,
    measurements,
)
from agentjobs_async.telemetry.wait_notes import WaitNotes

with extra_named("agentjobs_async.tracing"):
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["OpenTelemetryHook"]

_NAME: Final = "agentjobs_async"
_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()
_GLOBAL: Final = metrics.NoOpMeterProvider()  # stands for the global one, which may be set after a hook is made


@frozen(eq=False)
class _OpenSpan:
    """A span that is current in its caller's task, from the start of a create or a run to its end.

    Attributes:
        content: Whether it may have what a server or an agent wrote.
        before: The context to go back to.
        outer: The span that was opened before it in this task; `None` without one.
    """

    span: trace.Span
    content: bool
    before: contexts.Context
    outer: "_OpenSpan | None"


_open_span: ContextVar[_OpenSpan | None] = ContextVar("agentjobs_open_span", default=None)


class OpenTelemetryHook:
    """A hook that makes a span of each create, wait and `run_job`, and metrics of all of them and of polls.

    `create_job` and `wait_for_job` are CLIENT spans, `run_job` is their INTERNAL parent. A wait is one span however
    often it polls; changes of its job's status and the beginning of each outage or rate limit are events of it. A wait
    that lasts longer than the span around it is the root of a trace of its own, linked to that span; that of a batch
    for a job of an earlier run is linked to the span that created it. Errors of creates and waits set the status ERROR;
    a failed job does not, and neither does a cancelled caller.

    The page on observability names all attributes and metrics. No span has the prompt or the key. One hook may serve
    any number of sessions, trackers and batches.

    Args:
        tracer_provider: Where spans go; `None` for the global provider.
        meter_provider: Where metrics go; `None` for the global provider.
        polls: Whether each poll is timed, as a metric, and is an event of the spans of its waits; of a job's events the
            last 100 are kept. Polls are counted in any case.
        content: Whether spans have what a server or an agent wrote: the text of errors, and the pull request's link.
        projects: Whether metrics have a label for the project; gauges never do.
    """

    makes_spans = True
    _count_poll: Callable[[str], None] | None = None  # of a poll that shows no end; none if each is to be timed

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        polls: bool = False,
        content: bool = False,
        projects: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
        self._observed = _observed_by(meter_provider)
        meter = metrics.get_meter(_NAME, __version__, meter_provider)
        self._record = {
            metric: meter.create_histogram(
                metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets
            ).record
            for metric in HISTOGRAMS
            if polls or metric is not POLL_DURATION
        }
        self._notes = WaitNotes(polls=polls)
        self._count_poll = None if polls else self._on_poll
        self._content = content
        self._projects = projects

    def observe(self, source: object) -> None:
        """Also export the statistics of a session, a tracker, a batch, a worker or durable jobs, as they are when read.

        Args:
            source: An `AgentJobsSession`, a `JobTracker`, what `run_batch` returned, a `BatchWorker`, or `DurableJobs`.
                It is not kept alive.

        Raises:
            InvalidInputError: `source` is none of them.
        """
        self._observed.add(source)

    def __call__(self, event: events.Event, /) -> None:
        """Record `event` in the spans and metrics that it belongs to."""
        try:
            self._trace(event)
        finally:  # an SDK may raise, in its sampler say
            self._measure(event)

    def _trace(self, event: events.Event) -> None:
        match event:
            case events.JobPolled() | events.PollFailed():
                self._notes.on_poll(event)
            case events.JobChanged():
                self._notes.on_change(event)
            case events.WaitStarted():
                self._notes.begin(event)
            case events.WaitEnded():
                self._on_wait_ended(event)
            case events.RunStarted() | events.CreateStarted():
                self._open(event)
            case events.JobCreated() | events.CreateFailed() | events.RunEnded():
                self._close(event)

    def _measure(self, event: events.Event) -> None:
        for metric, value, labels in measurements(event, projects=self._projects):
            named = zip(label_names(metric, projects=self._projects), labels, strict=True)
            attributes = [(name, label) for name, label in named if label]
            if metric is POLLS:
                self._observed.count_poll(*attributes)
            elif metric in self._record:
                self._record[metric](value, dict(attributes))

    def _on_poll(self, project_id: str) -> None:
        self._observed.count_poll(*([("project", project_id)] if self._projects else []))

    # Spans that are current while they last.

    def _open(self, event: events.RunStarted | events.CreateStarted) -> None:
        is_run = isinstance(event, events.RunStarted)
        name, kind = ("run_job", trace.SpanKind.INTERNAL) if is_run else ("create_job", trace.SpanKind.CLIENT)
        span: trace.Span = trace.INVALID_SPAN
        try:
            span = self._tracer.start_span(name, kind=kind, attributes=start_attributes(event))
        finally:  # also where it can't be started: the end of this call must not end the span around it
            _open_span.set(_OpenSpan(span, self._content, contexts.get_current(), _open_span.get()))
        contexts.attach(trace.set_span_in_context(span))  # `_close` goes back, so its token is not kept

    def _close(self, event: events.JobCreated | events.CreateFailed | events.RunEnded) -> None:
        """End the newest span of this task, and go back to the context before it."""
        opened = _open_span.get()
        if opened is None:
            return
        contexts.attach(opened.before)
        _open_span.set(opened.outer)
        opened.span.set_attributes(end_attributes(event, content=opened.content))
        if isinstance(event, events.JobCreated):
            last_create.set(_traceparent(opened.span))
        else:
            _set_status(opened.span, event.error, content=opened.content)
        opened.span.end()

    # A wait's span is made at its end, from what was noted meanwhile.

    def _on_wait_ended(self, event: events.WaitEnded) -> None:
        end = time.time_ns()
        start = end - int(event.elapsed * 1e9)
        notes = self._notes.end(event, start)  # first: they go, also where the span can't be started
        around = trace.get_current_span()
        outlived = _has_ended(around)
        linked = ([around] if outlived else []) + _creating_span()
        span = self._tracer.start_span(
            "wait_for_job",
            contexts.Context() if outlived else None,
            trace.SpanKind.CLIENT,
            end_attributes(event, content=self._content),
            [trace.Link(other.get_span_context()) for other in linked],
            start,
        )
        for note in notes:
            span.add_event(note.name, note.attributes, note.time_ns)
        _set_status(span, event.error, content=self._content)
        span.end(end)


def _set_status(span: trace.Span, error: BaseException | None, *, content: bool) -> None:
    if isinstance(error, Exception):  # a cancelled caller is no error of the call
        text = describe(error) if content else type(error).__name__
        span.set_status(trace.Status(trace.StatusCode.ERROR, text))


def _traceparent(span: trace.Span) -> str | None:
    """Return the W3C trace context of `span`; `None` where tracing is off."""
    carrier: dict[str, str] = {}
    _TRACE_CONTEXT.inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent")


def _creating_span() -> list[trace.Span]:
    """Return the span, of an earlier run, that created the job of the current wait; empty without one."""
    traceparent = resumed_from.get()
    if traceparent is None:
        return []
    return [trace.get_current_span(_TRACE_CONTEXT.extract({"traceparent": traceparent}, contexts.Context()))]


def _has_ended(span: trace.Span) -> bool:
    """Return whether `span` is over: a sampled span of this process that records no more."""
    found = span.get_span_context()
    return found.is_valid and found.trace_flags.sampled and not found.is_remote and not span.is_recording()


class _Observed(Gauges):
    """What the SDK reads when it exports: the gauges, and the number of polls."""

    def __init__(self, meter: metrics.Meter) -> None:
        super().__init__()
        self._polls = Counter[tuple[tuple[str, str], ...]]()
        meter.create_observable_counter(POLLS.name, [self._read_polls], POLLS.unit, POLLS.description)
        for metric in GAUGES:
            meter.create_observable_gauge(metric.name, [partial(self._read, metric)], metric.unit, metric.description)

    def count_poll(self, *attributes: tuple[str, str]) -> None:
        """Count a poll."""
        with self._lock:
            self._polls[attributes] += 1

    def _read_polls(self, _options: metrics.CallbackOptions) -> list[metrics.Observation]:
        with self._lock:
            return [metrics.Observation(count, dict(attributes)) for attributes, count in self._polls.items()]

    def _read(self, metric: Metric, _options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
        for measured, value, labels in self.measurements():
            if measured is metric:
                yield metrics.Observation(value, dict(zip(metric.labels, labels, strict=True)))


_OBSERVED: Final = WeakKeyDictionary[metrics.MeterProvider, _Observed]()


def _observed_by(provider: metrics.MeterProvider | None) -> _Observed:
    """Return what a provider reads, one for all its hooks: an SDK reads the first instrument of a name only."""
    key = _GLOBAL if provider is None or provider is metrics.get_meter_provider() else provider
    if key not in _OBSERVED:
        _OBSERVED[key] = _Observed(metrics.get_meter(_NAME, __version__, provider))
    return _OBSERVED[key]
