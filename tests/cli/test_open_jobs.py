from agentjobs_async import AgentJob, JobCreated, JobPolled, NotFoundError, WaitEnded, WaitStarted
from agentjobs_async.cli.open_jobs import OpenJobs
from tests.polled import REF


def test_open_jobs() -> None:
    """A job is open from its create on, recorded once it is waited for, until it is seen to end or to be gone."""
    jobs, job = OpenJobs(), AgentJob("job_1", "docs", "active")
    jobs(JobCreated(job, 0.1))
    assert (jobs.all, jobs.unrecorded) == ([REF], [REF])
    jobs(WaitStarted(REF))
    jobs(JobPolled(job, 1))
    assert (jobs.all, jobs.unrecorded) == ([REF], [])
    jobs(WaitEnded(REF, None, TimeoutError(), 1, 1.0))
    assert jobs.all == [REF]
    jobs(WaitEnded(REF, None, NotFoundError(410), 1, 1.0))
    assert jobs.all == []
    jobs(WaitStarted(REF))
    jobs(JobPolled(AgentJob("job_1", "docs", "failed"), 1))
    assert jobs.all == []
