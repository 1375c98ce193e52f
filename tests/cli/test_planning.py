import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async.batch import BatchItem
from agentjobs_async.cli.planning import planned
from tests.cli.checks import Captured, screen
from tests.cli.stage import Child, EmulatorThread, endless_planning

pytestmark = pytest.mark.slow


class SlowJournal:
    """Takes two seconds for each page; refuses every thousandth item."""

    async def add(self, items: list[BatchItem]) -> list[Any]:
        await asyncio.sleep(2)
        return [(item, ValueError("no")) for item in items if int(item.key) % 1000 == 0]


@pytest.mark.looptime
async def test_a_log_is_told_now_and_then(capsys: Captured) -> None:
    """Where there is no terminal, a line every five seconds or more says how far planning is; refusals come back."""
    items = [BatchItem(str(number), "x") for number in range(1, 3_001)]
    journal: Any = SlowJournal()
    assert [item.key for item, _ in await planned(screen(), journal, items, keeps=True)] == ["1000", "2000", "3000"]
    assert capsys.readouterr() == ("", "1,500 of 3,000 are planned …\n3,000 of 3,000 are planned …\n")


def test_planning_is_stopped(service: EmulatorThread, tmp_path: Path, state_directory: Path, db: str) -> None:
    """A terminal shows how far planning is; Ctrl-C leaves it, and says what is planned in a journal that stays."""
    tasks = tmp_path / "tasks"
    tasks.write_text("".join(f"prompt {number}\n" for number in range(4_000)))
    said = []
    for journal in ([], ["--journal", db]):
        arguments = ("run", "--file", str(tasks), *journal)
        with Child(*arguments, env=service.environment, terminal=True, before=endless_planning) as child:
            child.until(" of 4,000 are planned").send(signal.SIGINT)
            assert child.ended() == 130
        said.append(" ".join(child.stdout.split()))
    assert "Nothing was sent. Stopped." in said[0]
    assert list(state_directory.iterdir()) == []
    assert "Nothing was sent; at least " in said[1]
    assert "The same command again plans the rest and continues." in said[1]
    assert "resume" not in said[1]
    assert service.emulator.requests == ()
