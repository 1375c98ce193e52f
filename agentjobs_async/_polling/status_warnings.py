"""Warnings of statuses that this version does not know."""

from typing import Final

from agentjobs_async.models import AgentJob, JobStatus
from agentjobs_async.telemetry.observers import logger

__all__ = ["StatusWarnings"]

_MAX_WARNINGS: Final = 100  # statuses that are logged: a server may make up any number


class StatusWarnings:
    """Logs each unknown status once, and at most 100 of them."""

    __slots__ = ("_warned",)

    def __init__(self) -> None:
        self._warned: tuple[str, ...] = ()  # a tuple: all empty ones are one object, and most stay empty

    def check(self, job: AgentJob) -> None:
        """Log if the status of `job` is unknown to this version; an unknown status does not end a wait."""
        if (
            type(job.status) is not JobStatus
            and job.shown_status not in self._warned
            and len(self._warned) < _MAX_WARNINGS
        ):
            self._warned += (job.shown_status,)
            logger.warning("job %s has the unknown status %s: taken as not ended", job.shown_name, job.shown_status)
