"""Metrics for Prometheus, made from the events of sessions, trackers and batches. Extra `prometheus`."""

from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentjobs_async._extras import extra_named
from agentjobs_async.telemetry.events import Event
from agentjobs_async.telemetry.metrics import GAUGES, HISTOGRAMS, POLLS, Gauges, Metric, label_names, measurements

with extra_named("agentjobs_async.prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client import Metric as Family
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

__all__ = ["PrometheusHook"]


class PrometheusHook:
    """A hook that counts and times jobs, creates, polls and waits in a Prometheus registry.

    The names are those of `OpenTelemetryHook`, with underscores and the unit: `agentjobs_create_duration_seconds`. One
    hook may serve any number of sessions, trackers and batches; all hooks on one registry count into the same metrics,
    so that an application may be made twice in a process.

    In several processes (`PROMETHEUS_MULTIPROC_DIR`) the client library exports counters and histograms, but no gauges
    that are read when asked: these have none.

    Args:
        registry: Where the metrics are registered; `None` for the client library's default registry.
        projects: Whether metrics have a label for the project; gauges never do.

    Raises:
        ValueError: The registry has metrics of these names already, of another origin or with other labels. Nothing is
            left behind.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, projects: bool = False) -> None:
        self._registry = REGISTRY if registry is None else registry
        self._projects = projects
        found = _REGISTERED.get(self._registry)
        if found is None or found.projects is not projects:
            found = _Metrics(projects=projects)
            self._registry.register(found)  # raises if there are others: all names at once, or none
            _REGISTERED[self._registry] = found
        self._metrics = found

    def unregister(self) -> None:
        """Remove the metrics from the registry, for all of its hooks, so that a later hook begins anew. Idempotent."""
        if _REGISTERED.get(self._registry) is self._metrics:
            del _REGISTERED[self._registry]
            self._registry.unregister(self._metrics)

    def observe(self, source: object) -> None:
        """Also export the statistics of a session, a tracker, a batch, a worker or durable jobs, as they are when read.

        Args:
            source: An `AgentJobsSession`, a `JobTracker`, what `run_batch` returned, a `BatchWorker`, or `DurableJobs`.
                It is not kept alive.

        Raises:
            InvalidInputError: `source` is none of them.
        """
        self._metrics.observed.add(source)

    def __call__(self, event: Event, /) -> None:
        """Add `event` to the metrics."""
        for metric, value, labels in measurements(event, projects=self._projects):
            collector = self._metrics.collectors[metric]
            if labels:
                collector = collector.labels(*labels)
            if metric is POLLS:
                collector.inc(value)
            else:
                collector.observe(value)


class _Metrics(Collector):
    """All metrics of one registry, registered as one: none is left where another's name is taken."""

    def __init__(self, *, projects: bool) -> None:
        self.projects = projects
        self.observed = Gauges()
        self.collectors: dict[Metric, Any] = {
            metric: _collector(metric, projects=projects) for metric in (*HISTOGRAMS, POLLS)
        }

    def describe(self) -> Iterator[Family]:
        """Yield the names of all metrics, with a value or without one."""
        for collector in self.collectors.values():
            yield from collector.describe()
        yield from map(_family, GAUGES)

    def collect(self) -> Iterator[Family]:
        """Yield all metrics with a value, in whatever thread the registry is read."""
        for collector in self.collectors.values():
            yield from collector.collect()
        families: dict[Metric, GaugeMetricFamily] = {}
        for metric, value, labels in self.observed.measurements():
            families.setdefault(metric, _family(metric)).add_metric(labels, value)
        yield from families.values()


_REGISTERED: Final = WeakKeyDictionary[CollectorRegistry, _Metrics]()


def _name(metric: Metric) -> str:
    return metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")


def _labels(metric: Metric, *, projects: bool = False) -> list[str]:
    return [label.replace(".", "_") for label in label_names(metric, projects=projects)]


def _collector(metric: Metric, *, projects: bool) -> Counter | Histogram:
    labels = _labels(metric, projects=projects)
    if metric is POLLS:
        return Counter(_name(metric), metric.description, labels, registry=None)
    return Histogram(_name(metric), metric.description, labels, registry=None, buckets=metric.buckets)


def _family(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(_name(metric), metric.description, labels=_labels(metric))
