import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import blocks, run_page

pytest_plugins = ["pytester"]


async def test_emulator_sample() -> None:
    """The first sample passes as a test."""
    assert await run_page("testing")["test_my_bot"]() is None


async def test_dialect_sample() -> None:
    """The sample of another service passes as a test."""
    assert await run_page("testing")["test_our_service"]() is None


def test_a_new_project(pytester: pytest.Pytester) -> None:
    """With the settings, the conftest and the tests of the page, a new project's tests pass without a warning."""
    plain, plugin, with_fixtures, *_ = blocks("testing")
    pytester.makepyprojecttoml(*blocks("testing", "toml"))
    pytester.makeconftest(plugin)
    pytester.makepyfile(test_plain=plain, test_with_fixtures=with_fixtures)
    done = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2)
    assert "Warning" not in f"{done.stdout}{done.stderr}"


def test_application_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample of an application that makes its own session passes, in a test that is not async."""
    with Emulator.in_thread(script=JobScript(duration=0)) as emulator:
        for name, value in emulator.environment("docs").items():
            monkeypatch.setenv(name, value)
        run_page("testing")["test_my_application"](emulator)
    assert emulator.agents_started["Fix the broken links"] == 1


@pytest.mark.looptime
async def test_plugin_sample() -> None:
    """The samples of the plugin's fixtures pass, an hour long and over in no time."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        assert await run_page("testing")["test_with_fixtures"](emulator, session) is None
        assert await run_page("testing")["test_an_hour_with_an_outage"](emulator, session) is None
