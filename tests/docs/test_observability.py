import pytest

from agentjobs_async import AgentJobsError
from agentjobs_async.telemetry import Event
from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page
from tests.test_docs import ROOT, table_below


async def test_hook(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of a hook prints one line per wait and per failed create."""
    await emulator.inject("400", prompt="Refuse me")
    async with run_page("observability")["session"] as session:
        await session.run_job("Measure me")
        with pytest.raises(AgentJobsError):
            await session.create_job("Refuse me", timeout=1)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("wait_seconds ")
    assert first.endswith(" completed")
    assert second == "create_failed docs rejected"


def test_events() -> None:
    """The table names every event."""
    rows = table_below(ROOT / "docs" / "observability.md", "Observability")
    named = {name.strip("` ") for row in rows for name in row[0].split(",")}
    assert named == {kind.__name__ for kind in Event.__args__}
