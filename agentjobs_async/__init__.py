# The rooms of this package; docs/architecture.md says more. A room imports only what stands above it.
#
#   errors models      what goes wrong, what the service speaks of
#   _loop              cancellation; one event loop, one process
#   telemetry policy   hooks and events; when to ask again                             (tenacity)
#   _dialect           what differs between services; the service file
#   learning           what the durations of earlier jobs say                          (tenacity)
#   _documents         a job's document to a job                                       (cattrs)
#   _http              one exchange: bytes and status; never when or how often         (aiohttp's client, yarl)
#   _polling           when to ask, whom to notify; knows no HTTP
#   tracker session    JobTracker; AgentJobsSession, which joins _http and _polling
#   batch              run_batch, Journal; batch/_store holds the rows                 (SQLAlchemy)
#   durable            DurableJobs: single jobs on a batch's rows
#   engines            the same batch on many machines                                 (Procrastinate)
#   web                HTTP answers, events, draining at a signal
#   report             a journal as a page and other files; report/live the live page  (jinja2, aiohttp's server)
#   testing            the emulator of the service                                     (aiohttp's server)
#   tracing prometheus hooks for OpenTelemetry and for Prometheus
#   cli                the command line                                                (click, rich)
"""Create background agent jobs over HTTP and await them, one or a hundred thousand, from one event loop."""

import typing as _typing  # private, since this module's other names are the public ones
from importlib import import_module as _import_module

from agentjobs_async._version import __version__

if _typing.TYPE_CHECKING:  # imported at the first use, so that the command line can first settle what Ctrl-C does
    from agentjobs_async._dialect.dialect import Dialect
    from agentjobs_async._http.create import OnCancel
    from agentjobs_async._http.transport import HttpTimeouts
    from agentjobs_async._polling.as_completed import WaitResult
    from agentjobs_async._polling.reading import GetJob, OnUpdate
    from agentjobs_async._polling.stats import TrackerStats
    from agentjobs_async._polling.wait import wait_for_job
    from agentjobs_async.errors import (
        AgentJobsError,
        AuthError,
        CreateOutcome,
        CreateOutcomeUnknownError,
        InvalidInputError,
        JobFailedError,
        JournalError,
        NotFoundError,
        NotSentError,
        ProtocolError,
        RateLimitedError,
        RejectedError,
        ResponseError,
        ServerError,
        SessionClosedError,
        TransportError,
        UserLimitError,
        WaitTimeoutError,
    )
    from agentjobs_async.learning.estimate import Estimate
    from agentjobs_async.learning.history import History
    from agentjobs_async.learning.strategy import wait_learned
    from agentjobs_async.models import AgentJob, JobRef, JobSource, JobStatus
    from agentjobs_async.policy import DEFAULT_RETRY, PollBudget, PollPolicy, RetryStrategy, WaitStrategy
    from agentjobs_async.session import AgentJobsSession
    from agentjobs_async.telemetry.events import (
        CreateFailed,
        CreateRetried,
        CreateStarted,
        Event,
        JobChanged,
        JobCreated,
        JobPolled,
        KeyRequested,
        PollFailed,
        RunEnded,
        RunStarted,
        WaitEnded,
        WaitStarted,
    )
    from agentjobs_async.telemetry.logging_hook import LoggingHook
    from agentjobs_async.telemetry.observers import Hook, SpanHook
    from agentjobs_async.tracker import JobTracker

__all__ = [
    "DEFAULT_RETRY",
    "AgentJob",
    "AgentJobsError",
    "AgentJobsSession",
    "AuthError",
    "CreateFailed",
    "CreateOutcome",
    "CreateOutcomeUnknownError",
    "CreateRetried",
    "CreateStarted",
    "Dialect",
    "Estimate",
    "Event",
    "GetJob",
    "History",
    "Hook",
    "HttpTimeouts",
    "InvalidInputError",
    "JobChanged",
    "JobCreated",
    "JobFailedError",
    "JobPolled",
    "JobRef",
    "JobSource",
    "JobStatus",
    "JobTracker",
    "JournalError",
    "KeyRequested",
    "LoggingHook",
    "NotFoundError",
    "NotSentError",
    "OnCancel",
    "OnUpdate",
    "PollBudget",
    "PollFailed",
    "PollPolicy",
    "ProtocolError",
    "RateLimitedError",
    "RejectedError",
    "ResponseError",
    "RetryStrategy",
    "RunEnded",
    "RunStarted",
    "ServerError",
    "SessionClosedError",
    "SpanHook",
    "TrackerStats",
    "TransportError",
    "UserLimitError",
    "WaitEnded",
    "WaitResult",
    "WaitStarted",
    "WaitStrategy",
    "WaitTimeoutError",
    "__version__",
    "wait_for_job",
    "wait_learned",
]

_MODULES: _typing.Final = {
    "DEFAULT_RETRY": "policy",
    "AgentJob": "models",
    "AgentJobsError": "errors",
    "AgentJobsSession": "session",
    "AuthError": "errors",
    "CreateFailed": "telemetry.events",
    "CreateOutcome": "errors",
    "CreateOutcomeUnknownError": "errors",
    "CreateRetried": "telemetry.events",
    "CreateStarted": "telemetry.events",
    "Dialect": "_dialect.dialect",
    "Estimate": "learning.estimate",
    "Event": "telemetry.events",
    "GetJob": "_polling.reading",
    "History": "learning.history",
    "Hook": "telemetry.observers",
    "HttpTimeouts": "_http.transport",
    "InvalidInputError": "errors",
    "JobChanged": "telemetry.events",
    "JobCreated": "telemetry.events",
    "JobFailedError": "errors",
    "JobPolled": "telemetry.events",
    "KeyRequested": "telemetry.events",
    "JobRef": "models",
    "JobSource": "models",
    "JobStatus": "models",
    "JobTracker": "tracker",
    "JournalError": "errors",
    "LoggingHook": "telemetry.logging_hook",
    "NotFoundError": "errors",
    "NotSentError": "errors",
    "OnCancel": "_http.create",
    "OnUpdate": "_polling.reading",
    "PollBudget": "policy",
    "PollFailed": "telemetry.events",
    "PollPolicy": "policy",
    "ProtocolError": "errors",
    "RateLimitedError": "errors",
    "RejectedError": "errors",
    "ResponseError": "errors",
    "RetryStrategy": "policy",
    "RunEnded": "telemetry.events",
    "RunStarted": "telemetry.events",
    "ServerError": "errors",
    "SessionClosedError": "errors",
    "SpanHook": "telemetry.observers",
    "TrackerStats": "_polling.stats",
    "TransportError": "errors",
    "UserLimitError": "errors",
    "WaitEnded": "telemetry.events",
    "WaitResult": "_polling.as_completed",
    "WaitStarted": "telemetry.events",
    "WaitStrategy": "policy",
    "WaitTimeoutError": "errors",
    "wait_for_job": "_polling.wait",
    "wait_learned": "learning.strategy",
}
"""The module of each public name: no other one is loaded for it."""

if not _typing.TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> object:
        """Return a public name; its module is imported at the first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _import_module(f"{__name__}.{_MODULES[name]}")
        return globals().setdefault(name, getattr(module, name))

    def __dir__() -> list[str]:
        """Return all names, also those that were not used yet."""
        return sorted({*globals(), *__all__})
