"""What is measured, and what each event adds to it: one table for OpenTelemetry and Prometheus."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from threading import Lock
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakSet

from attrs import frozen

from agentjobs_async.errors import CreateOutcome, InvalidInputError
from agentjobs_async.telemetry.attributes import wait_outcome
from agentjobs_async.telemetry.events import CreateFailed, Event, JobCreated, JobPolled, PollFailed, WaitEnded

__all__ = [
    "GAUGES",
    "HISTOGRAMS",
    "POLLS",
    "POLL_DURATION",
    "Gauges",
    "ItemGauges",
    "Metric",
    "label_names",
    "measurements",
]

_SHORT_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # of one exchange, or a few
_LONG_SECONDS: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)  # of an agent's work
_NO_ERROR: Final = ("",)


@frozen(eq=False)
class Metric:
    """One metric.

    Attributes:
        name: Its name; OpenTelemetry takes it as it is, Prometheus with underscores and its unit.
        unit: `s`, or a word in braces for a number.
        labels: The names of its labels; each takes a few values only.
        buckets: The upper bounds of a histogram's buckets; empty for a counter or a gauge.
    """

    name: str
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


Measurement = tuple[Metric, float, tuple[str, ...]]
"""A metric, a value, and the values of its labels."""


def _histogram(name: str, description: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"agentjobs.{name}", "s", description, labels, buckets)


_JOB_DURATION: Final = _histogram(
    "job.duration", "Time from a job's creation to the poll that showed its end", _LONG_SECONDS, "status"
)
_LATENESS: Final = _histogram(
    "wait.lateness", "Longest possible time from a job's end to the poll that showed it", _SHORT_SECONDS
)
_WAIT_DURATION: Final = _histogram("wait.duration", "Duration of one wait", _LONG_SECONDS, "outcome")
_CREATE_DURATION: Final = _histogram(
    "create.duration", "Duration of one create, including all tries", _SHORT_SECONDS, "outcome", "error.type"
)
POLLS: Final = Metric("agentjobs.polls", "{poll}", "Finished polls", ("error.type",))
POLL_DURATION: Final = _histogram("poll.duration", "Duration of one poll", _SHORT_SECONDS)
_WATCHED: Final = Metric("agentjobs.jobs.watched", "{job}", "Jobs being waited for")
_DUE: Final = Metric("agentjobs.jobs.due", "{job}", "Jobs due to be polled")
_OLDEST: Final = Metric("agentjobs.jobs.oldest_unobserved", "s", "Time since the least recently polled job was polled")
_ITEMS: Final = Metric("agentjobs.batch.items", "{item}", "Items of the observed batches", ("state",))

_PLANNED: Final = Metric("agentjobs.items.planned", "{item}", "Items that are planned and not sent yet")
_UNKNOWN: Final = Metric("agentjobs.items.unknown", "{item}", "Items whose creates have an unknown outcome")
_HELD: Final = Metric("agentjobs.items.held", "{item}", "Planned items whose creates are held back, not by a limit")

HISTOGRAMS: Final = (_JOB_DURATION, _LATENESS, _WAIT_DURATION, _CREATE_DURATION, POLL_DURATION)
GAUGES: Final = (_WATCHED, _DUE, _OLDEST, _ITEMS, _PLANNED, _UNKNOWN, _HELD)


def label_names(metric: Metric, *, projects: bool) -> tuple[str, ...]:
    """Return the names of the labels of `metric`; with `projects` also that of the project, which gauges never have."""
    return (*metric.labels, "project") if projects and metric not in GAUGES else metric.labels


def measurements(event: Event, *, projects: bool) -> tuple[Measurement, ...]:
    """Return what `event` adds to the metrics, with label values in the order of `label_names`."""
    measured = _measured(event)
    if not projects:
        return measured
    return tuple((metric, value, (*labels, event.project)) for metric, value, labels in measured)


def _measured(event: Event) -> tuple[Measurement, ...]:
    match event:
        case JobPolled():
            return (POLLS, 1, _NO_ERROR), (POLL_DURATION, event.elapsed, ()), *_ended(event)
        case PollFailed(_, error):
            return (POLLS, 1, (type(error).__name__,)), (POLL_DURATION, event.elapsed, ())
        case JobCreated():
            return ((_CREATE_DURATION, event.elapsed, (str(CreateOutcome.CREATED), "")),)
        case CreateFailed():
            return ((_CREATE_DURATION, event.elapsed, (str(event.outcome), type(event.error).__name__)),)
        case WaitEnded() if event.error is not None or event.lateness is not None:
            return ((_WAIT_DURATION, event.elapsed, (wait_outcome(event),)),)
    return ()


def _ended(event: JobPolled) -> tuple[Measurement, ...]:
    """Return what the end of a job adds: once, and nothing where a later read finds it ended."""
    if event.lateness is None:
        return ()
    late, created_at = (_LATENESS, event.lateness, ()), event.job.created_at
    if created_at is None:
        return (late,)
    seconds = max(0.0, (datetime.now(UTC) - created_at).total_seconds())
    return late, (_JOB_DURATION, seconds, (str(event.job.status),))


@frozen
class ItemGauges:
    """What gauges show of the items of a batch, a worker or durable jobs.

    Attributes:
        planned: How many are planned and not sent yet.
        unknown: How many have a create whose outcome is unknown.
        held: How many of the planned ones wait while creates of their projects are held back: by a refused key, a 429,
            an outage or an unreachable server, not by a rate or `max_active`.
        states: How many are in each state, in words; empty where only the above is known.
    """

    planned: int
    unknown: int
    held: int
    states: Mapping[str, int] = MappingProxyType({})


class Gauges:
    """The sessions, trackers, batches, workers and durable jobs that gauges show, whatever their event loops.

    Each has a method `_gauges`, which may be called in an exporter's thread: the figures are those of that moment, also
    where all polls hang and no event comes. It returns `None` while there is nothing to show, else `ItemGauges`, or the
    statistics of a tracker.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._sources = WeakSet[Any]()

    def add(self, source: object) -> None:
        """Observe `source` for as long as it lives.

        Raises:
            InvalidInputError: It is none of them.
        """
        if isinstance(source, type) or not hasattr(source, "_gauges"):
            raise InvalidInputError(
                "observe takes a session, a tracker, a batch, a worker or durable jobs, not " + type(source).__name__
            )
        with self._lock:
            self._sources.add(source)

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the gauges of all sources together."""
        with self._lock:
            sources = list(self._sources)
        found = [source._gauges() for source in sources]  # noqa: SLF001 - see above
        return tuple(_added_up([stats for stats in found if stats is not None]))


def _added_up(found: list[Any]) -> Iterator[Measurement]:
    trackers = [stats for stats in found if hasattr(stats, "oldest_unobserved")]
    if trackers:
        yield _WATCHED, sum(stats.jobs for stats in trackers), ()
        yield _DUE, sum(stats.due for stats in trackers), ()
        yield _OLDEST, max(stats.oldest_unobserved for stats in trackers), ()
    items = [stats for stats in found if isinstance(stats, ItemGauges)]
    states: Counter[str] = Counter()
    for stats in items:
        states.update(stats.states)
    for state, count in states.items():
        yield _ITEMS, count, (state,)
    if items:
        yield _PLANNED, sum(stats.planned for stats in items), ()
        yield _UNKNOWN, sum(stats.unknown for stats in items), ()
        yield _HELD, sum(stats.held for stats in items), ()
