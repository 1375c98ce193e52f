"""The display of a run."""

from collections import Counter

import pytest
from attrs import evolve
from sqlalchemy import Executable

from agentjobs_async import (
    AgentJobsError,
    AgentJobsSession,
    CreateOutcomeUnknownError,
    NotSentError,
    PollFailed,
    RateLimitedError,
    TransportError,
)
from agentjobs_async.batch import (
    ActiveItem,
    BatchItem,
    BatchStats,
    BatchWorker,
    Journal,
    Limits,
    Rate,
    State,
    run_batch,
)
from agentjobs_async.batch._database.writer import Database, Rows
from agentjobs_async.batch._estimates import End
from agentjobs_async.batch._store.claims import NoRoomError
from agentjobs_async.cli._output.lines import ItemLines, JsonLines
from agentjobs_async.cli._output.view import in_one_line
from agentjobs_async.cli.display import RunDisplay
from agentjobs_async.testing import Emulator, JobScript
from tests.cli.checks import Captured, screen
from tests.polled import REF


async def test_queue_of_the_rate(db: str) -> None:
    """A rate per project counts for the project with the most planned items, another for all of them."""
    async with Journal.open(db) as journal:
        await journal.add([BatchItem(f"a{number}", "x", "docs") for number in range(3)])
        await journal.add([BatchItem(f"b{number}", "x", "api") for number in range(2)])
        rate = Rate(1, per=3600)
        for create_rate, queue in ((rate, 3), (evolve(rate, scope="all"), 5)):
            display = RunDisplay(screen(), ItemLines(screen()))
            await journal.set_limits(Limits(create_rate=create_rate))
            await display._count(journal)
            assert display._queue == queue


@pytest.mark.parametrize("count", [6, 60])
async def test_results_need_no_queries(db: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run reads the journal a few times, however many results and changes are shown."""
    monkeypatch.setattr("agentjobs_async.cli.display._COUNT_SECONDS", 3600.0)
    reads, shown = Counter[str](), 0
    read = Database.read

    async def counted(database: Database, statement: Executable) -> Rows:
        reads[str(statement)] += 1
        return await read(database, statement)

    display = RunDisplay(screen(), JsonLines(screen()))
    async with (
        Emulator(script=JobScript(duration=0.01)) as emulator,
        emulator.session(project_id="docs", hooks=display.hooks) as session,
        Journal.open(db) as journal,
    ):
        await journal.add(BatchItem(f"k{number}", "x", "docs") for number in range(count))
        monkeypatch.setattr(Database, "read", counted)
        async with run_batch(session, (), journal=journal) as batch, display.shown(batch, journal):
            async for result in batch:
                display.show_result(result)
                shown += 1
    assert shown == count
    assert reads.total() <= 24


async def test_a_log_that_is_silent(db: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log in which nothing ends gets a line of the whole from time to time."""
    monkeypatch.setattr("agentjobs_async.cli.display._QUIET_SECONDS", 0.0)
    display = RunDisplay(screen(), ItemLines(screen()))
    async with Journal.open(db) as journal:
        await journal.add([BatchItem(f"a{number}", "x", "docs") for number in range(3)])
        run = BatchWorker(AgentJobsSession("http://127.0.0.1:9", "key", project_id="docs"), journal)
        async with display.shown(run, journal):
            display._show_life(run)
    printed = capsys.readouterr().err
    assert " 0 %: 3 planned; no estimate of the end yet\n" in printed


def test_no_end_while_the_service_is_gone() -> None:
    """No end is shown while creates are held back by more than a 429, nor while polls fail."""
    for paused_by, is_known in (
        (None, True),
        (RateLimitedError(429), True),
        (NoRoomError("max_active"), True),
        (NotSentError("nothing was sent", "refused"), False),
        (CreateOutcomeUnknownError("cut"), False),
    ):
        display = RunDisplay(screen(), ItemLines(screen()))
        display._counts = {State.PLANNED: 1, State.ACTIVE: 1}
        run = OneItem(State.ACTIVE, paused_by)
        assert (display._view(run).end is not None) is is_known, paused_by
        for poll in (1, 2):
            assert display._view(run).trouble == ""
            for hook in display.hooks:
                hook(PollFailed(REF, TransportError("cut"), poll))
        assert in_one_line(display._view(run)).endswith("; polls fail: cut; a read may be tried again")


def test_the_end_of_a_run() -> None:
    """The end of a run is the run's own; a limit that is used up is no fault, and hides no end."""
    display = RunDisplay(screen(), ItemLines(screen()))
    run = OneItem(State.ACTIVE, NoRoomError("max_active"))
    known = evolve(run.stats(), planned=7, total=8, ends_in=90.0, decided_by="max_active 3")
    run.stats = lambda: known  # type: ignore[method-assign]  # what it knows
    view = display._view(run)
    assert (view.end, view.held_by) == (End(90.0, "max_active 3"), "")


def test_silence_of_the_server(capsys: Captured) -> None:
    """No answer is missed while nothing was asked: as long as unknown items keep all slots, nothing is sent."""
    for state, paused_by, notices in (
        (State.PLANNED, None, 0),
        (State.PLANNED, AgentJobsError("unknown items keep all slots"), 0),
        (State.PLANNED, NotSentError("nothing was sent", "refused"), 1),
        (State.SENDING, None, 1),
        (State.ACTIVE, None, 1),
    ):
        display = RunDisplay(screen(), ItemLines(screen()))
        assert not display.show_silence("http://127.0.0.1:9")  # the run has not begun
        display._run = OneItem(state, paused_by)
        assert display.show_silence("http://127.0.0.1:9") is bool(notices)
        printed = capsys.readouterr().err
        assert printed.count("No answer from http://127.0.0.1:9 so far") == notices, (state, paused_by)


class OneItem:
    """A run that works on one item."""

    def __init__(self, state: State, paused_by: Exception | None) -> None:
        self._item = ActiveItem("a", state, 9.0, None)
        self._paused_by = paused_by

    def stats(self) -> BatchStats:
        return BatchStats(1, 1, None, {}, stopped=False, paused_by=self._paused_by, usual=(60.0, 60.0))

    def active(self) -> list[ActiveItem]:
        return [self._item]
