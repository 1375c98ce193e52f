import pytest

from agentjobs_async import AgentJob, AgentJobsError
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import run_page


async def test_many(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The first sample prints each job as it ends."""
    async with emulator.session(project_id="docs") as session:
        jobs = [await session.create_job(f"Job {number}") for number in range(3)]
        await run_page("many-jobs")["report"](session, jobs)
    printed = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in printed) == sorted(job.ref.to_token() for job in jobs)


async def test_follow(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of one job's changes prints them until the end."""
    emulator.script(JobScript(duration=float("inf")))
    await emulator.inject("ok x1 on=get then document status=completed forever on=get")
    async with emulator.session(project_id="docs") as session:
        job = await session.create_job("Follow me")
        await run_page("many-jobs")["show_changes"](session, job.ref)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["active", "completed"]


async def test_create_all(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """A refused create is shown, and the jobs of the others are collected."""
    async with emulator.session(project_id="docs") as session:
        jobs = await run_page("many-jobs")["create_all"](session, ["One", " ", "Two"])
    assert [job.id for job in jobs] == [*emulator.jobs]
    assert len(jobs) == 2
    assert capsys.readouterr().out.startswith("not created: prompt ")


async def test_fan_out(emulator: Emulator) -> None:
    """In the fan-out, a failing create affects no other job."""
    async with emulator.session(project_id="docs") as session:
        results = await run_page("many-jobs")["run_all"](session, ["One", " ", "Two"])
    assert [isinstance(result, AgentJob) for result in results] == [True, False, True]
    assert isinstance(results[1], AgentJobsError)


async def test_quota(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session that finds a quota by itself waits like any other."""
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    async with run_page("many-jobs")["session"] as session:
        assert (await session.run_job("Find the quota")).succeeded
