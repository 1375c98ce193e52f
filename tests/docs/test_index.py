import asyncio

import pytest

import agentjobs_async
from agentjobs_async import AgentJobsSession, JobStatus, JobTracker
from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page
from tests.test_docs import ROOT, table_below

PAGE = ROOT / "docs" / "index.md"


async def test_program(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The program creates one job, waits for it, and prints its end."""
    await asyncio.to_thread(run_page, "index")
    assert capsys.readouterr().out.startswith("completed http")
    assert emulator.agents_started["Document the v2 endpoints"] == 1


def test_statuses() -> None:
    """The table of statuses names every status, in the order of the code, and then any other text."""
    assert [row[0].strip("`") for row in table_below(PAGE, "Statuses")][:-1] == [str(status) for status in JobStatus]


def test_waits() -> None:
    """The table of calls names every way to wait that a tracker has."""
    named = " ".join(row[1] for row in table_below(PAGE, "Which call when"))
    waits = {"wait_for_job", "watch", "updates", "as_completed", "notify"}
    assert all(callable(getattr(kind, name)) for name in waits for kind in (AgentJobsSession, JobTracker))
    assert all(f"`{name}`" in named for name in waits)
    assert callable(agentjobs_async.wait_for_job)
