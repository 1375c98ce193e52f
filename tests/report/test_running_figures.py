from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace

import pytest

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.live import running_figures
from agentjobs_async.report.live.running_figures import RunningFigures


def row(number: int, state: State) -> JournalRow:
    return JournalRow(f"k{number}", "p", "docs", state, None, None, None, datetime.now(UTC), number)


async def test_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row counts as it was last, and not at all once all were removed."""
    monkeypatch.setattr("agentjobs_async.report.live.running_figures._REST_PER_SECOND", 0)
    figures = RunningFigures()
    assert (await figures.current()).total == 0
    figures.count([row(1, State.PLANNED), row(2, State.PLANNED)])
    assert (await figures.current()).counts == {State.PLANNED: 2}
    figures.count([row(2, State.FAILED), row(3, State.ACTIVE)])
    assert (await figures.current()).counts == {State.PLANNED: 1, State.FAILED: 1, State.ACTIVE: 1}
    assert [number for number in range(5) if number in figures] == [1, 2, 3]
    figures.clear()
    assert (await figures.current()).total == 0


async def test_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that took a second to compute are computed again after four more at the earliest."""
    clock = count()  # a second later at each look at it
    monkeypatch.setattr(
        running_figures, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), time=lambda: 0.0)
    )
    figures = RunningFigures()
    figures.count([row(1, State.PLANNED)])
    totals = []
    for _ in range(5):
        totals.append((await figures.current()).total)
        figures.count([row(2, State.PLANNED)])
    assert totals == [1, 1, 1, 1, 2]
