"""How a journal stands: each sentence, and that reports and pages have the same one."""

from pathlib import Path
from typing import Any

import pytest

from agentjobs_async.batch import BatchItem, BatchWorker, Journal, Limits, Rate, State
from agentjobs_async.batch._estimates import End
from agentjobs_async.batch._monitoring import Outlook
from agentjobs_async.batch._store.measures import Activity
from agentjobs_async.report.standing import NEEDING_A_PERSON, Facts, StandingKind, standing, standing_of
from tests.aged import LONG_AGO_SECONDS, aged_journal
from tests.batch.stage import FakeSession
from tests.report.stage import fail_all, report_of, run_some

HOUR = 3600.0
RATE = "create_rate 100/h"
PLANNED = {State.PLANNED: 200, State.ACTIVE: 40}
ENDED = {State.COMPLETED: 209, State.FAILED: 21, State.REJECTED: 6, State.UNKNOWN: 4}
STOPPED = Activity(None, 3 * HOUR)


def at_work(end: End | None, **counts: int) -> Facts:
    return Facts({State(name): number for name, number in counts.items()}, is_at_work=True, outlook=Outlook(end))


SENTENCES: list[tuple[Facts, str]] = [
    (Facts({}), "No items yet"),
    (Facts({State.PLANNED: 200}, activity=Activity(None, None)), "Not begun: 200 planned"),
    (Facts(PLANNED, activity=STOPPED), "Stopped 3 h ago: 200 planned, 40 active, polled by nobody"),
    (
        Facts({State.SENDING: 1, State.FAILED: 1}, activity=STOPPED),
        "Stopped 3 h ago: 1 active, polled by nobody; 1 needs you",
    ),
    (Facts({State.PLANNED: 1200}, activity=Activity(None, 2.0)), "Stopped just now: 1,200 planned"),
    (at_work(End(2 * HOUR, RATE), planned=5), "Running: ends in about 2 h; --create-rate 100/h decides"),
    (
        at_work(End(2 * HOUR, RATE, is_least=True), planned=5),
        "Running: ends in more than 2 h; --create-rate 100/h decides",
    ),
    (at_work(End(90.0, "max_active 20"), active=5, unknown=2), "Running: ends in about 2 min; 2 need you"),
    (at_work(End(0.2, "max_active 20"), active=5), "Running: ends soon"),
    (at_work(End(0.2, "max_active 20"), active=5, planned=1), "Running: no estimate of the end yet"),
    (at_work(None, active=5), "Running: no estimate of the end yet"),
    (
        Facts(PLANNED, is_at_work=True, outlook=Outlook(unseen_seconds=600.0)),
        "Running, but no active job was seen for 10 min: no run polls them, or no server answers",
    ),
    (Facts(ENDED, activity=Activity(9240.0, 5.0)), "Ended in 2\u00a0h 34\u00a0min: 31 need you"),
    (Facts({State.COMPLETED: 5}, is_at_work=True, activity=Activity(60.0, 5.0)), "Ended in 1\u00a0min: all completed"),
    (
        Facts({State.COMPLETED: 5, State.ARCHIVED: 1}, activity=Activity(60.0, 5.0)),
        "Ended in 1\u00a0min: nothing needs you",
    ),
    (Facts({State.UNKNOWN: 1}), "Ended: 1 needs you"),
    (
        Facts({State.PLANNED: 5}, moved_to="postgresql://db/jobs"),
        "Moved to postgresql://db/jobs: continue there, since this journal can only be read",
    ),
]


@pytest.mark.parametrize(("facts", "words"), SENTENCES)
def test_sentences(facts: Facts, words: str) -> None:
    """Each kind of facts makes one sentence; what has stopped has the command that continues with it."""
    found = standing(facts)
    assert found.words == words
    assert (found.command is None) is (found.kind is not StandingKind.STOPPED)
    needs = any(facts.counts.get(state) for state in NEEDING_A_PERSON)
    assert (found.kind is StandingKind.NEEDING) is (words.startswith("Ended") and needs)


async def test_stopped_journal(tmp_path: Path) -> None:
    """A file that no process owns has stopped since a job was seen last, and is continued by the command."""
    path = tmp_path / "run.db"
    await aged_journal(path, [60.0], ages=[7200.0, 3600.0], unseen_seconds=1800.0)
    async with Journal.open(path, read_only=True) as journal:
        found = await standing_of(journal)
    assert found.words == "Stopped 30 min ago: 2 active, polled by nobody"
    assert found.command == f"agentjobs resume {path}"


async def test_running_journal(tmp_path: Path) -> None:
    """While another owner has the file, its end is estimated by the one computation that the command line uses."""
    path = tmp_path / "run.db"
    await aged_journal(path, [HOUR] * 9, ages=[60.0])
    async with Journal.open(path) as owner:
        await owner.add([BatchItem(f"k{number}", "p", "docs") for number in range(3)])
        await owner.set_limits(Limits(create_rate=Rate(1, per=HOUR)))
        async with Journal.open(path, read_only=True) as journal:
            words = (await standing_of(journal)).words
        found = await standing_of(owner)  # which itself runs nothing
    assert words == "Running: ends in about 3 h; --create-rate 1/h decides"
    assert found.words == "Stopped just now: 3 planned, 1 active, polled by nobody"


async def test_ended_journal(tmp_path: Path) -> None:
    """The time of a run is that from its first create to its last end, and what failed needs a person."""
    path = tmp_path / "run.db"
    await aged_journal(path, [60.0, LONG_AGO_SECONDS / 2])
    async with Journal.open(path, read_only=True) as journal:
        assert (await standing_of(journal)).words == "Ended in 2\u00a0h: all completed"
    await fail_all(path, [BatchItem("a", "p"), BatchItem("b", "p")])
    async with Journal.open(path, read_only=True) as journal:
        assert (await standing_of(journal)).words.endswith(": 2 need you")


@pytest.mark.parametrize("form", ["html", "markdown"])
async def test_first_of_all(tmp_path: Path, form: str) -> None:
    """A report says how the journal stands before any figure, then why items have no result, most frequent first."""
    await run_some(tmp_path / "run.db")
    options: dict[str, Any] = {"format": form}
    text = await report_of(tmp_path / "run.db", **options)
    parts = ["ago: 1 planned; 3 need you" if "ago: 1" in text else "Stopped just now: 1 planned; 3 need you"]
    parts += [f"agentjobs resume {tmp_path}", "1\u00a0\u00d7 the agent failed", "1\u00a0\u00d7 HTTP 422"]
    assert all(part in text.replace('<span class="word">', "").replace("</span>", "") for part in parts)
    assert text.index(parts[0]) < text.index('class="tiles"' if form == "html" else "| unknown |")


async def test_shared_journal(database: str) -> None:
    """On PostgreSQL, a run is what a living worker has open, whichever process asks."""
    async with Journal.open(database) as worker, Journal.open(database, read_only=True) as journal:
        await worker.add([BatchItem("a", "p", "docs")])
        async with BatchWorker(FakeSession().session, worker):
            words = (await standing_of(journal)).words
        assert words == "Running: no estimate of the end yet"
        assert (await standing_of(journal)).words == "Not begun: 1 planned"
        await worker.abandon("a")
        assert (await standing_of(journal)).words == "Ended: nothing needs you"
