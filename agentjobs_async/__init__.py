# The rooms of this package. Nobody knows a room further down.
#
#   errors        the tree of errors
#   models        AgentJob, JobRef, JobStatus, JobSource
#   telemetry     Hook, event records, LoggingHook
#   _strategies   tenacity's strategies, called on our terms                          (tenacity)
#   policy        PollPolicy, PollBudget, HttpTimeouts
#   decision      decide(): what each answer means, for one wait and for ten thousand
#   _documents    a job's document to a job                                           (cattrs)
#   _wire         answers to jobs or errors; over _strict_json, _content_coding, _retry_after and _secrets
#   _address      base address and path templates                                     (yarl)
#   _transport    one request over a socket; maps every fault                         (aiohttp's client)
#   _scope        interrupting the current task; _binding: one loop, one process
#   waiting       wait_for_job: one wait, in the caller's task
#   counters      TrackerStats
#   watching      a tracked wait as a future, and its changes; over _scheduler, _workers and _queue
#   completion    many tracked waits: their results as they come
#   tracker       JobTracker: many jobs on one loop
#   _settings     a session's settings, from arguments or the environment
#   creating      one create and its outcome
#   session       AgentJobsSession
#   batch         run_batch, Journal: many prompts, through any end of the process             (SQLAlchemy)
#   engines       the same batch on many machines: procrastinate                            (procrastinate)
#   testing       the emulator of the service
#   cli           the command line                                                    (click, rich)
"""Create background agent jobs over HTTP and await them, one or a hundred thousand, from one event loop."""

from agentjobs_async._version import __version__
from agentjobs_async.completion import WaitResult
from agentjobs_async.counters import TrackerStats
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
from agentjobs_async.models import AgentJob, JobRef, JobSource, JobStatus
from agentjobs_async.policy import HttpTimeouts, PollBudget, PollPolicy
from agentjobs_async.session import AgentJobsSession
from agentjobs_async.telemetry import (
    CreateFailed,
    Event,
    Hook,
    JobChanged,
    JobCreated,
    JobPolled,
    LoggingHook,
    PollFailed,
    WaitEnded,
)
from agentjobs_async.tracker import JobTracker
from agentjobs_async.waiting import GetJob, OnUpdate, wait_for_job

__all__ = [
    "AgentJob",
    "AgentJobsError",
    "AgentJobsSession",
    "AuthError",
    "CreateFailed",
    "CreateOutcome",
    "CreateOutcomeUnknownError",
    "Event",
    "GetJob",
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
    "ServerError",
    "SessionClosedError",
    "TrackerStats",
    "TransportError",
    "WaitEnded",
    "WaitResult",
    "WaitTimeoutError",
    "__version__",
    "wait_for_job",
]
