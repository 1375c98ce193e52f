"""Jobs that were created for a call which was cut before its caller got them: none of their ids is lost."""

import asyncio

from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry.observers import logger

__all__ = ["report_left"]


def report_left(job: AgentJob, cut: BaseException) -> None:
    """Log the token of a job whose caller was cut by `cut` before it got the job, and note it on a cancellation.

    Args:
        job: The job. Its agent may be at work.
        cut: The `CancelledError`, or the `SessionClosedError`, which names the job by itself.
    """
    words = f"job {job.ref.to_token()} was created, and its caller was cut off: it continues; wait for it by this token"
    logger.warning("%s", words)
    if isinstance(cut, asyncio.CancelledError):
        cut.add_note(words)
