"""Jobs that end after a number of polls, and a get-job callable that reads them from memory."""

from collections.abc import Iterator
from itertools import chain, repeat

from agentjobs_async import AgentJob, JobRef

__all__ = ["Jobs"]


class Jobs:
    """`count` jobs, each active for `polls - 1` polls, then completed. All jobs that it returns are made beforehand.

    Attributes:
        refs: The references of the jobs.
        reads: The number of reads so far.
    """

    def __init__(self, count: int, polls: int) -> None:
        self.refs = [JobRef("docs", f"job_{number}") for number in range(count)]
        self.reads = 0
        self._answers = {ref.job_id: _answers(ref, polls) for ref in self.refs}

    async def get_job(self, ref: JobRef) -> AgentJob:
        """Read a job."""
        self.reads += 1
        return next(self._answers[ref.job_id])


def _answers(ref: JobRef, polls: int) -> Iterator[AgentJob]:
    active = AgentJob(ref.job_id, ref.project_id, "active")
    completed = AgentJob(ref.job_id, ref.project_id, "completed")
    return chain(repeat(active, polls - 1), repeat(completed))
