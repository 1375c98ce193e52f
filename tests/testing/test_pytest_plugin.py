"""The pytest plugin, as the tests of a user load it."""

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

FIXTURES = '''
import asyncio
import time
import urllib.request

import pytest
from agentjobs_async import AgentJobsSession, History, JobRef, NotFoundError, PollPolicy, wait_learned
from agentjobs_async.testing import JobScript

async def test_session(agentjobs_emulator, agentjobs_session):
    """The session of a test creates its jobs on the emulator of the test."""
    job = await agentjobs_session.create_job("write")
    assert agentjobs_emulator.jobs[job.id].prompt == "write"

@pytest.mark.agentjobs(api_key="emk_mine")
async def test_marker(agentjobs_emulator):
    """The marker has the settings of the emulator."""
    assert agentjobs_emulator.api_key == "emk_mine"

@pytest.mark.looptime(start=0)
@pytest.mark.agentjobs(script=JobScript(duration=60))
async def test_a_minute(agentjobs_session):
    """A job of a minute ends within a second: jobs and polls are a hundred times as fast."""
    await agentjobs_session.run_job("write")
    assert 0.6 <= asyncio.get_running_loop().time() < 0.8

@pytest.mark.looptime(start=0)
@pytest.mark.agentjobs(speed=1, script=JobScript(duration=60))
async def test_in_real_time(agentjobs_session):
    """They are as fast as marked."""
    await agentjobs_session.run_job("write")
    assert 60 <= asyncio.get_running_loop().time() < 80

@pytest.mark.looptime(start=0)
async def test_a_job_that_is_not_there(agentjobs_session):
    """A job that does not exist is missed within half a second."""
    with pytest.raises(NotFoundError):
        await agentjobs_session.wait_for_job(JobRef("docs", "job_1"))
    assert asyncio.get_running_loop().time() < 0.5

@pytest.mark.looptime(start=0)
@pytest.mark.agentjobs(speed=1, script=JobScript(duration=60))
async def test_learned(agentjobs_emulator):
    """Jobs begin now by the wall clock, though looptime replaces the loop's clock after the fixtures: waits learn."""
    policy = PollPolicy(wait=wait_learned(history := History()))
    async with agentjobs_emulator.session(project_id="docs", policy=policy) as session:
        job = await session.run_job("write")
    assert abs(job.created_at.timestamp() - time.time()) < 600
    assert len(history) == 1

async def application():
    async with AgentJobsSession() as session:
        return await session.create_job("write")

async def test_environment(agentjobs_env):
    """`agentjobs_env` leads a session without arguments to the emulator."""
    job = await application()
    assert agentjobs_env.jobs[job.id].project_id == "docs"

def test_environment_of_a_blocking_test(agentjobs_env, agentjobs_emulator):
    """It does so in a test without a loop."""
    job = asyncio.run(application())
    assert agentjobs_env is agentjobs_emulator
    assert agentjobs_emulator.jobs[job.id].project_id == "docs"

async def test_blocking_client(agentjobs_emulator, caplog):
    """A call that blocks the loop of the emulator is reported in the log of the test."""
    while "blocked" not in caplog.text:
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(agentjobs_emulator.base_url, timeout=0.5)
    assert "the emulator's event loop has been blocked for 2 s" in caplog.text
    assert "Emulator.in_thread()" in caplog.text
'''
WIDER_SCOPE = '''
import asyncio
import pytest

loops = set()

@pytest.mark.parametrize("number", range(2))
async def test_run(agentjobs_emulator, agentjobs_session, number):
    """Emulator and session run on the loop of the test, that of the session; each test has its own emulator."""
    loops.add(asyncio.get_running_loop())
    job = await agentjobs_session.run_job("write")
    assert job.succeeded
    assert len(agentjobs_emulator.jobs) == len(loops) == 1
'''
NO_SETTINGS = [
    ("speed=0", "speed must be a finite number of times above 0, not 0"),
    ("latency='slow'", "latency must be a number of seconds from 0 on, not str"),
    ("spede=2", "Emulator.__init__() got an unexpected keyword argument 'spede'"),
    ("rate_limit=5", "rate_limit must be of type RateLimit, not int"),
    ("script='failed'", "script must be a JobScript, or a function that returns one, not 'failed'"),
    ("faults='503 x0'", "faults: 503 must take at least one request"),
    ("faults=503", "faults: a plan is a FaultPlan, a Fault or the text of one, not 503"),
    ("faults='hang for=long'", "faults: for must be a number from 0 on, not long"),
    ("port=-1", "port must be a whole number of at least 0, not -1"),
    ("api_key='emk secret'", "api_key must be visible ASCII characters without blanks"),
    ("host=None", "host must be a string, not NoneType"),
]
SENDING = """
async def test_nothing_is_sent(agentjobs_emulator, agentjobs_session):
    await agentjobs_session.create_job("write")
    assert agentjobs_emulator.requests == ()

async def test_the_same_is_sent(agentjobs_emulator, agentjobs_session):
    await agentjobs_session.create_job("write")
    await agentjobs_session.create_job("read")
    first, second = agentjobs_emulator.requests
    assert first == second
"""


def outcome(pytester: pytest.Pytester, *options: str, settings: str = "", **files: str) -> pytest.RunResult:
    """Run the files of a user in a separate process."""
    pytester.makeini(SETTINGS + settings)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(**files)
    return pytester.runpytest_subprocess(*options)


def test_fixtures(pytester: pytest.Pytester) -> None:
    """What the docstrings of the tests of a user say is so."""
    result = outcome(pytester, test_fixtures=FIXTURES)
    assert result.parseoutcomes() == {"passed": FIXTURES.count("def test_")}


def test_loop_of_the_session(pytester: pytest.Pytester) -> None:
    """A loop may be that of the whole session, by a setting; one of another scope is refused by name."""
    scope = "asyncio_default_test_loop_scope = session"
    module = "import pytest\n@pytest.mark.asyncio(loop_scope='module')\nasync def test_it(agentjobs_session): pass"
    result = outcome(pytester, settings=scope, test_session=WIDER_SCOPE, test_module=module)
    assert result.parseoutcomes() == {"passed": 2, "errors": 1}
    words = "the fixtures of agentjobs need a loop_scope of function or session, not module"
    assert words in result.stdout.str()


def test_what_is_shown(pytester: pytest.Pytester) -> None:
    """A setting of a marker that is not valid is one line, with its name and the line of its test; no key is shown.

    Neither the requests, their fields nor the locals of a failing assertion have a key.
    """
    tests = ["import pytest", "async def test_good(agentjobs_emulator): pass"]
    for number, (settings, _) in enumerate(NO_SETTINGS):
        tests += [f"@pytest.mark.agentjobs({settings})", f"async def test_{number}(agentjobs_emulator): pass"]
    result = outcome(pytester, "-vv", "-l", test_markers="\n".join(tests), test_sending=SENDING)
    assert result.parseoutcomes() == {"errors": len(NO_SETTINGS), "passed": 1, "failed": 2}
    shown = result.stdout.str()
    for number, (_, told) in enumerate(NO_SETTINGS):
        where = f"test_markers.py:{2 * number + 3}: test_{number}"
        assert f"{where}: @pytest.mark.agentjobs: {told}" in shown
    assert "emk secret" not in shown
    assert "Traceback" not in shown
    assert "'Authorization': '***'" in shown
    assert "emk_" not in shown
