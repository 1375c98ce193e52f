"""Events, the hooks that are called with them, and the hook that logs them."""

from agentjobs_async.telemetry.events import (
    CreateFailed,
    CreateRetried,
    CreateStarted,
    Event,
    Hook,
    JobChanged,
    JobCreated,
    JobPolled,
    PollFailed,
    RunEnded,
    RunStarted,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async.telemetry.logging_hook import LoggingHook

__all__ = [
    "CreateFailed",
    "CreateRetried",
    "CreateStarted",
    "Event",
    "Hook",
    "JobChanged",
    "JobCreated",
    "JobPolled",
    "LoggingHook",
    "PollFailed",
    "RunEnded",
    "RunStarted",
    "WaitEnded",
    "WaitStarted",
]
