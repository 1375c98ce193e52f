"""Events, the hooks that are called with them, and the hook that logs them: loaded where they are named."""

from importlib import import_module
from typing import TYPE_CHECKING

from agentjobs_async.telemetry.observers import Hook, SpanHook

if TYPE_CHECKING:
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

__all__ = [
    "CreateFailed",
    "CreateRetried",
    "CreateStarted",
    "Event",
    "Hook",
    "JobChanged",
    "JobCreated",
    "JobPolled",
    "KeyRequested",
    "LoggingHook",
    "PollFailed",
    "RunEnded",
    "RunStarted",
    "SpanHook",
    "WaitEnded",
    "WaitStarted",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'logging_hook' if name == 'LoggingHook' else 'events'}"), name)
