"""The recipe for synchronous code, as a process."""

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from agentjobs_async.batch import Journal
from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import LONG, Program, complete, program
from tests.until import until

pytestmark = pytest.mark.slow

Scripts = Callable[..., AbstractAsyncContextManager[Program]]


@pytest.fixture
def script(service: Emulator, tmp_path: Path) -> Scripts:
    """Return the program of some prompts, whose journal is one and the same."""
    settings = {**service.environment(), "JOURNAL": str(tmp_path / "jobs.db")}
    return lambda *prompts: program("sync_script", settings, *prompts)


async def run(script: Program) -> tuple[int, str]:
    """Run it to its end; return the exit code, and what it wrote."""
    async with script.running() as process:
        code = await process.end()
    assert "Traceback" not in process.output
    assert "never " not in process.output
    return code, process.output


async def test_results(script: Scripts, service: Emulator) -> None:
    """It prints each end, and why a prompt has no job, without a traceback; it is run again without another agent."""
    service.script(JobScript(duration=0))
    await service.inject("500 on=create", prompt="Unlucky")
    await service.inject("429 retry-after=1 on=create", prompt=LONG)
    async with script("One", "Unlucky", LONG, " ", "One", "\udcff") as program:
        for ends, unknown in ((2, 1), (0, 0)):
            code, output = await run(program)
            assert (code, output.count(" completed: http"), output.count(" unknown: ")) == (1, ends, unknown)
            assert output.count("prompt is blank") == 1
            assert output.count("prompt is not valid Unicode") == 1
            assert "2 of 5 are completed" in output
    assert (service.agents_started["One"], service.agents_started[LONG]) == (1, 1)
    assert sum(request.method == "POST" for request in service.requests) == 4  # one more after the 429


async def test_credentials(service: Emulator, laid_out: str) -> None:
    """It shows how to look at its journal without the password of the database."""
    url = make_url(laid_out).set(password="hidden-one").render_as_string(hide_password=False)
    async with program("sync_script", {**service.environment(), "JOURNAL": url}) as script:
        _, output = await run(script)
    assert "type: agentjobs status postgresql+psycopg://" in output
    assert "hidden-one" not in output


async def test_failure(script: Scripts, service: Emulator) -> None:
    """The exit code is 1 if a job has failed, also when it is run again."""
    service.script(JobScript(duration=0, outcome="failed"), prompt="Fail")
    service.script(JobScript(duration=0), prompt="Go on")
    async with script("Fail", "Go on") as program:
        code, output = await run(program)
        assert (code, output.count(" failed: "), output.count(" completed: ")) == (1, 1, 1)
        assert (await run(program))[0] == 1
    assert service.agents_started == {"Fail": 1, "Go on": 1}


async def test_success(script: Scripts, service: Emulator) -> None:
    """The exit code is 0 if all jobs are completed, also when it is run again."""
    service.script(JobScript(duration=0))
    async with script("Go", "Go on") as program:
        assert (await run(program))[0] == 0
        assert (await run(program))[0] == 0
    assert service.agents_started == {"Go": 1, "Go on": 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals(number: int, script: Scripts, service: Emulator) -> None:
    """Two signals end the waits, but no create under way; the next run continues with each job."""
    await service.inject("hang for=0.5 agent=yes on=create", prompt="Slow")
    async with script("Quick", "Slow") as program:
        async with program.running() as process:
            polled = until(lambda: any(request.method == "GET" for request in service.requests))
            await process.watch(polled)
            await process.watch(until(lambda: service.agents_started.total() == 2))
            await process.stop(number, 1)
        await complete(service)
        code, output = await run(program)
    assert (code, output.count(" completed: ")) == (0, 2)
    assert service.agents_started == {"Quick": 1, "Slow": 1}


async def test_kill(script: Scripts, service: Emulator) -> None:
    """After a kill amid a create, the next run says that it may have been started, and starts nothing again."""
    await service.inject("hang agent=yes on=create", prompt="Slow")
    async with script("Quick", "Slow") as program:
        async with program.running() as process:
            await process.watch(until(lambda: any(request.method == "GET" for request in service.requests)))
            await process.watch(until(lambda: service.agents_started.total() == 2))
            process.interrupt(signal.SIGKILL)
            await process.end()
        await complete(service)
        code, output = await run(program)
    assert (code, output.count(" completed: "), output.count(" unknown: ")) == (1, 1, 1)
    assert service.agents_started == {"Quick": 1, "Slow": 1}


async def test_wrong_key(script: Scripts, service: Emulator) -> None:
    """A key that the service refuses ends it, with the reason; the next run sends the prompts."""
    service.script(JobScript(duration=0))
    await service.inject("401 on=create")
    async with script("Go") as program:
        code, output = await run(program)
        assert (code, "HTTP 401" in output) == (1, True)
        assert (await run(program))[0] == 0
    assert service.agents_started == {"Go": 1}


async def test_two_at_once(script: Scripts, service: Emulator, tmp_path: Path) -> None:
    """A second run beside the first one says why it ends, and sends nothing."""
    async with Journal.open(tmp_path / "jobs.db"), script("Fix it") as program:
        code, output = await run(program)
    assert code == 1
    assert "another process owns it" in output
    assert not service.requests
