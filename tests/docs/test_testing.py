import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import run_page


async def test_emulator_sample() -> None:
    """The first sample passes as a test."""
    assert await run_page("testing")["test_my_bot"]() is None


def test_application_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample of an application that makes its own session passes, in a test that is not async."""
    with Emulator.in_thread(script=JobScript(duration=0)) as emulator:
        for name, value in emulator.environment("docs").items():
            monkeypatch.setenv(name, value)
        run_page("testing")["test_my_application"](emulator)
    assert emulator.agents_started["Fix the broken links"] == 1


@pytest.mark.looptime
async def test_plugin_sample() -> None:
    """The sample of the plugin's fixtures passes, an hour long and over in no time."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        assert await run_page("testing")["test_an_hour_with_an_outage"](emulator, session) is None
