import pytest

from agentjobs_async import AgentJobsSession
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import run_page


async def test_wait(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The first sample shows each change and returns at the end."""
    async with emulator.session(project_id="docs") as session:
        job = await session.create_job("Wait for me")
        await run_page("waiting")["wait"](session, job)
    assert capsys.readouterr().out.splitlines() == [f"{job.id} active", f"{job.id} completed"]


async def test_restart(emulator: Emulator) -> None:
    """A wait is continued from its token, in another session."""
    async with emulator.session(project_id="docs") as session:
        token = (await session.create_job("Continue")).ref.to_token()
    async with emulator.session() as session:
        job = await run_page("waiting")["continue_waiting"](session, token)
    assert job.succeeded


@pytest.mark.usefixtures("emulator")
async def test_policy() -> None:
    """The sample of a policy makes a session."""
    assert isinstance(run_page("waiting")["session"], AgentJobsSession)


@pytest.mark.usefixtures("emulator")
async def test_own_get_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of a get-job of one's own waits without a session."""
    await run_page("waiting")["main"]()
    assert capsys.readouterr().out == "True\n"


@pytest.mark.looptime
async def test_figures() -> None:
    """A job of three minutes costs 34 requests, one of eight minutes 68, up to the jitter."""
    for minutes, requests in ((3, 34), (8, 68)):
        async with Emulator(script=JobScript(duration=60 * minutes)) as emulator:
            async with emulator.session(project_id="docs") as session:
                await session.run_job("Count", timeout=None)
            reads = sum(request.method == "GET" for request in emulator.requests)
        assert reads == pytest.approx(requests, abs=4)
