"""The pytest plugin, as a user's tests have it."""

import pytest

pytest_plugins = ["pytester"]

CONFTEST = 'pytest_plugins = ["agentjobs_async.testing.pytest_plugin"]'
SETTINGS = """
[pytest]
addopts = --strict-markers
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


def passes(pytester: pytest.Pytester, test: str) -> bool:
    """Tell whether the one test of a user's file passes, in a process of its own."""
    pytester.makeini(SETTINGS)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test)
    return pytester.runpytest_subprocess().parseoutcomes() == {"passed": 1}


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
    """The marker gives the settings of the emulator."""
    assert passes(
        pytester,
        """
        import pytest

        @pytest.mark.agentjobs(api_key="emk_mine")
        async def test_settings(agentjobs_emulator):
            assert agentjobs_emulator.api_key == "emk_mine"
        """,
    )
