"""The recipe for synchronous code, as a process."""

import signal

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import program
from tests.until import until

pytestmark = pytest.mark.slow


async def test_results() -> None:
    """It prints the end of each job, and an error without a traceback."""
    async with Emulator(script=JobScript(duration=0)) as emulator:
        await emulator.inject("500 on=create", prompt="Unlucky")
        async with program("sync_script", emulator.environment(), "One", "Unlucky", "Two") as script:
            async with script.running() as process:
                assert await process.end() == 0
    assert process.output.count(" completed ") == 2
    assert "may have been started" in process.output
    assert "Traceback" not in process.output


async def test_interrupt() -> None:
    """Ctrl-C ends the wait; a create under way has its answer first, and each job's token is printed."""
    async with Emulator(script=JobScript(duration=float("inf"))) as emulator:
        await emulator.inject("hang for=1 agent=yes on=create", prompt="Slow")
        async with program("sync_script", emulator.environment(), "Quick", "Slow") as script:
            async with script.running() as process:
                await until(
                    lambda: emulator.agents_started.total() == 2 and any(r.method == "GET" for r in emulator.requests)
                )
                process.interrupt(signal.SIGINT)
                assert await process.end() == 128 + signal.SIGINT
    assert process.output.count("continues: ") == 2
    assert "Traceback" not in process.output
