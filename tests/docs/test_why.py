import pytest

from agentjobs_async import AgentJob, JobRef, JobStatus
from tests.docs.samples import run_page


class OneJob:
    """A session whose job ends at the third read."""

    def __init__(self) -> None:
        self.reads = 0

    async def get_job(self, job: AgentJob) -> AgentJob:
        self.reads += 1
        return AgentJob(job.id, job.project_id, JobStatus.COMPLETED if self.reads == 3 else JobStatus.ACTIVE)


@pytest.mark.looptime
async def test_naive_loop() -> None:
    """The loop that most programs begin with waits for its job, on a good day."""
    session, ref = OneJob(), JobRef("docs", "job_1")
    job = await run_page("why")["naive_wait"](session, AgentJob(ref.job_id, ref.project_id, JobStatus.ACTIVE))
    assert job.succeeded
    assert session.reads == 3
