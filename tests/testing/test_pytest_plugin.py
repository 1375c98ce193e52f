"""The pytest plugin, as the tests of a user load it."""

from collections.abc import Sequence

import pytest

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

CONFTEST = 'pytest_plugins = ["agentjobs_async.testing.pytest_plugin"]'
SETTINGS = """
[pytest]
addopts = --strict-markers
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


def outcome(pytester: pytest.Pytester, test: str, *settings: str, options: Sequence[str] = ()) -> pytest.RunResult:
    """Run the file of a user in a separate process."""
    pytester.makeini("\n".join([SETTINGS, *settings]))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test)
    return pytester.runpytest_subprocess(*options)


def passes(pytester: pytest.Pytester, test: str, *settings: str, number: int = 1) -> bool:
    """Return whether the tests of a user's file pass in a separate process."""
    return outcome(pytester, test, *settings).parseoutcomes() == {"passed": number}


def test_session_talks_to_the_emulator(pytester: pytest.Pytester) -> None:
    """The session of a test creates its jobs on the emulator of the test."""
    assert passes(
        pytester,
        """
        async def test_create(agentjobs_emulator, agentjobs_session):
            job = await agentjobs_session.create_job("write")
            assert agentjobs_emulator.jobs[job.id].prompt == "write"
        """,
    )


def test_marker(pytester: pytest.Pytester) -> None:
    """The marker has the settings of the emulator."""
    assert passes(
        pytester,
        """
        import pytest

        @pytest.mark.agentjobs(api_key="emk_mine")
        async def test_settings(agentjobs_emulator):
            assert agentjobs_emulator.api_key == "emk_mine"
        """,
    )


NO_SETTINGS = [
    ("speed=0", "latency must be at least 0, and speed above 0, both finite, not 0.0 and 0"),
    ("latency='slow'", "latency must be at least 0, and speed above 0, both finite, not 'slow' and 100.0"),
    ("spede=2", "Emulator.__init__() got an unexpected keyword argument 'spede'"),
    ("rate_limit=5", "rate_limit must be a RateLimit, or None, not 5"),
    ("script='failed'", "script must be a JobScript, or a function that returns one, not 'failed'"),
    ("faults='503 x0'", "faults: 503 must take at least one request"),
    ("faults=503", "faults: a plan is a FaultPlan, a Fault or the text of one, not 503"),
    ("faults='hang for=long'", "faults: for must be a number from 0 on, not long"),
    ("port=-1", "port must be a whole number from 0 to 65535, not -1"),
    ("api_key='emk secret'", "api_key must be visible ASCII characters without blanks"),
    ("host=None", "host must be an address to listen on, not None"),
]


def test_markers_that_make_no_sense(pytester: pytest.Pytester) -> None:
    """A setting of a marker that is not valid is one line, with its name and the line of its test."""
    tests = ["import pytest", "async def test_good(agentjobs_emulator): pass"]
    for number, (settings, _) in enumerate(NO_SETTINGS):
        tests += [f"@pytest.mark.agentjobs({settings})", f"async def test_{number}(agentjobs_emulator): pass"]
    result = outcome(pytester, "\n".join(tests))
    assert result.parseoutcomes() == {"errors": len(NO_SETTINGS), "passed": 1}
    shown = result.stdout.str()
    for number, (_, told) in enumerate(NO_SETTINGS):
        place = f"test_markers_that_make_no_sense.py:{2 * number + 3}: test_{number}"
        assert f"{place}: @pytest.mark.agentjobs: {told}" in shown
    assert "emk secret" not in shown
    assert "Traceback" not in shown


def test_failing_assertion_shows_no_key(pytester: pytest.Pytester) -> None:
    """The requests, their fields and the locals that pytest shows have no key."""
    result = outcome(
        pytester,
        """
        async def test_nothing_is_sent(agentjobs_emulator, agentjobs_session):
            await agentjobs_session.create_job("write")
            assert agentjobs_emulator.requests == ()

        async def test_the_same_is_sent(agentjobs_emulator, agentjobs_session):
            await agentjobs_session.create_job("write")
            await agentjobs_session.create_job("read")
            first, second = agentjobs_emulator.requests
            assert first == second
        """,
        options=["-vv", "-l"],
    )
    assert result.parseoutcomes() == {"failed": 2}
    assert "'Authorization': '***'" in result.stdout.str()
    assert "emk_" not in result.stdout.str()


@pytest.mark.parametrize(("wider", "by_marker"), [("session", False), ("module", True)])
def test_wider_loop_scope(pytester: pytest.Pytester, wider: str, *, by_marker: bool) -> None:
    """Emulator and session run on the loop of the test, whatever its scope; each test has its own emulator."""
    marked = f"pytestmark = pytest.mark.asyncio(loop_scope={wider!r})" if by_marker else ""
    assert passes(
        pytester,
        f"""
        import asyncio
        import pytest

        {marked}
        loops = set()

        @pytest.mark.parametrize("number", range(2))
        async def test_run(agentjobs_emulator, agentjobs_session, number):
            loops.add(asyncio.get_running_loop())
            job = await agentjobs_session.run_job("write")
            assert job.succeeded
            assert len(agentjobs_emulator.jobs) == len(loops) == 1
        """,
        *([] if by_marker else [f"asyncio_default_test_loop_scope = {wider}"]),
        number=2,
    )


def test_polls_are_as_fast_as_the_jobs(pytester: pytest.Pytester) -> None:
    """A job of a minute ends within a second: jobs and polls are a hundred times as fast, or as marked."""
    assert passes(
        pytester,
        """
        import asyncio
        import pytest
        from agentjobs_async import NotFoundError, JobRef
        from agentjobs_async.testing import JobScript

        @pytest.mark.looptime(start=0)
        @pytest.mark.agentjobs(script=JobScript(duration=60))
        async def test_a_minute(agentjobs_session):
            await agentjobs_session.run_job("write")
            assert 0.6 <= asyncio.get_running_loop().time() < 0.8

        @pytest.mark.looptime(start=0)
        @pytest.mark.agentjobs(speed=1, script=JobScript(duration=60))
        async def test_in_real_time(agentjobs_session):
            await agentjobs_session.run_job("write")
            assert 60 < asyncio.get_running_loop().time() < 80

        @pytest.mark.looptime(start=0)
        async def test_a_job_that_is_not_there(agentjobs_session):
            with pytest.raises(NotFoundError):
                await agentjobs_session.wait_for_job(JobRef("docs", "job_1"))
            assert asyncio.get_running_loop().time() < 0.5
        """,
        number=3,
    )


def test_waits_that_learn_in_virtual_time(pytester: pytest.Pytester) -> None:
    """Jobs begin now by the wall clock, though looptime replaces the loop's clock after the fixtures: waits learn."""
    assert passes(
        pytester,
        """
        import time
        import pytest
        from agentjobs_async import History, PollPolicy, wait_learned
        from agentjobs_async.testing import JobScript

        @pytest.mark.looptime(start=0)
        @pytest.mark.agentjobs(speed=1, script=JobScript(duration=60))
        async def test_learned(agentjobs_emulator):
            policy = PollPolicy(wait=wait_learned(history := History()))
            async with agentjobs_emulator.session(project_id="docs", policy=policy) as session:
                job = await session.run_job("write")
            assert abs(job.created_at.timestamp() - time.time()) < 600
            assert len(history) == 1
        """,
        number=1,
    )


def test_environment_of_an_application(pytester: pytest.Pytester) -> None:
    """`agentjobs_env` leads a session without arguments to the emulator, in async tests and in others."""
    assert passes(
        pytester,
        """
        import asyncio
        from agentjobs_async import AgentJobsSession

        async def application():
            async with AgentJobsSession() as session:
                return await session.create_job("write")

        async def test_async(agentjobs_env):
            job = await application()
            assert agentjobs_env.jobs[job.id].project_id == "docs"

        def test_blocking(agentjobs_env, agentjobs_emulator):
            job = asyncio.run(application())
            assert agentjobs_env is agentjobs_emulator
            assert agentjobs_emulator.jobs[job.id].project_id == "docs"
        """,
        number=2,
    )


def test_blocked_loop(pytester: pytest.Pytester) -> None:
    """A call that blocks the loop of the emulator is reported in the log of the test."""
    assert passes(
        pytester,
        """
        import urllib.request
        import pytest

        async def test_blocking_client(agentjobs_emulator, caplog):
            while "blocked" not in caplog.text:
                with pytest.raises(TimeoutError):
                    urllib.request.urlopen(agentjobs_emulator.base_url, timeout=0.5)
            assert "the emulator's event loop has been blocked for 2 s" in caplog.text
            assert "Emulator.in_thread()" in caplog.text
        """,
    )
