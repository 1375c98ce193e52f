"""What links the trace of a job's wait to that of its create, when another process waits for the job again.

Both variables hold a W3C trace context: the text of the header `traceparent`. They are set and read within one task, so
that no item of a batch sees those of another.
"""

from contextvars import ContextVar
from typing import Final

__all__ = ["last_create", "resumed_from"]

last_create: Final[ContextVar[str | None]] = ContextVar("agentjobs_last_create", default=None)
"""The span of the last create in this task: a hook sets it, and a batch records it in its journal."""
resumed_from: Final[ContextVar[str | None]] = ContextVar("agentjobs_resumed_from", default=None)
"""The span that created the job that this task waits for: a batch sets it from its journal, and a hook links it."""
