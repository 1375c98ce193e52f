"""Events, the hooks that are called with them, and the hook that logs them."""

from agentjobs_async.telemetry.events import (
    CreateFailed,
    CreateRetried,
    Event,
    Hook,
    JobChanged,
    JobCreated,
    JobPolled,
    PollFailed,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async.telemetry.logging_hook import LoggingHook

__all__ = [
    "CreateFailed",
    "CreateRetried",
    "Event",
    "Hook",
    "JobChanged",
    "JobCreated",
    "JobPolled",
    "LoggingHook",
    "PollFailed",
    "WaitEnded",
    "WaitStarted",
]
