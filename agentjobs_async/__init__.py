# The rooms of this package; docs/architecture.md says more. A room imports only what stands above it.
#
#   errors models      what goes wrong, what the service speaks of
#   _loop              cancellation; one event loop, one process
#   telemetry policy   hooks and events; when to ask again                             (tenacity)
#   learning           what the durations of earlier jobs say                          (tenacity)
#   _documents         a job's document to a job                                       (cattrs)
#   _http              one exchange: bytes and status; never when or how often         (aiohttp's client, yarl)
#   _polling           when to ask, whom to notify; knows no HTTP
#   tracker session    JobTracker; AgentJobsSession, which joins _http and _polling
#   batch              run_batch, Journal; batch/_store holds the rows                 (SQLAlchemy)
#   engines            the same batch on many machines                                 (Procrastinate)
#   web                HTTP answers, events, signed tokens                 (itsdangerous)
#   testing            the emulator of the service
#   tracing prometheus hooks for OpenTelemetry and for Prometheus
#   cli                the command line                                                (click, rich)
"""Create background agent jobs over HTTP and await them, one or a hundred thousand, from one event loop."""

from typing import TYPE_CHECKING

from agentjobs_async import _start, telemetry  # noqa: F401 - before the other imports: they are what takes the time
from agentjobs_async._http.transport import HttpTimeouts
from agentjobs_async._polling.as_completed import WaitResult
from agentjobs_async._polling.reading import GetJob, OnUpdate
from agentjobs_async._polling.stats import TrackerStats
from agentjobs_async._polling.wait import wait_for_job
from agentjobs_async._version import __version__
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
    WaitTimeoutError,
)
from agentjobs_async.learning.estimate import Estimate
from agentjobs_async.learning.history import History
from agentjobs_async.learning.strategy import wait_learned
from agentjobs_async.models import AgentJob, JobRef, JobSource, JobStatus
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.session import AgentJobsSession
from agentjobs_async.telemetry import Hook
from agentjobs_async.tracker import JobTracker

if TYPE_CHECKING:  # loaded where they are named, as their module says
    from agentjobs_async.telemetry import (
        CreateFailed,
        CreateRetried,
        CreateStarted,
        Event,
        JobChanged,
        JobCreated,
        JobPolled,
        LoggingHook,
        PollFailed,
        RunEnded,
        RunStarted,
        WaitEnded,
        WaitStarted,
    )

__all__ = [
    "AgentJob",
    "AgentJobsError",
    "AgentJobsSession",
    "AuthError",
    "CreateFailed",
    "CreateOutcome",
    "CreateOutcomeUnknownError",
    "CreateRetried",
    "CreateStarted",
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
    "LoggingHook",
    "NotFoundError",
    "NotSentError",
    "OnUpdate",
    "PollBudget",
    "PollFailed",
    "PollPolicy",
    "ProtocolError",
    "RateLimitedError",
    "RejectedError",
    "ResponseError",
    "RunEnded",
    "RunStarted",
    "ServerError",
    "SessionClosedError",
    "TrackerStats",
    "TransportError",
    "WaitEnded",
    "WaitResult",
    "WaitStarted",
    "WaitTimeoutError",
    "__version__",
    "wait_for_job",
    "wait_learned",
]


def __getattr__(name: str) -> object:
    if name not in telemetry.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(telemetry, name)
