"""Items that are tried more than once: each keeps its key, and each try is kept as it was."""

import asyncio
from typing import Any

import pytest

from agentjobs_async import JobRef
from agentjobs_async.batch import Journal, JournalRow, State, run_batch
from tests.batch.stage import (
    FakeSession,
    claim_of,
    created_by_hand,
    items,
    outcomes,
    records_of,
    run,
    states,
    unknown_by_hand,
)

pytestmark = [pytest.mark.looptime, pytest.mark.slow]

LATE_SECONDS = 50.0
"""From a create to its answer, in which it is counted as unknown."""


async def tries_of(journal: Journal, key: str) -> list[tuple[int, str, str | None]]:
    """Return of each try of an item its number, state and job."""
    rows = [row for row in await journal.rows(all_tries=True) if row.key == key]
    return [(row.tries, str(row.state), row.job_id) for row in rows]


async def test_a_retry_keeps_its_key(journal: Journal) -> None:
    """An item that is tried again ends under its key, as often as that is; rows show its last try, or all of them."""
    session = FakeSession()
    session.ends = {"p0": "failed"}
    for _ in range(2):
        assert outcomes(await run(session, items(2), journal)).get("k0") == "failed"
        assert await journal.retry("k0") == "k0"
    session.ends = {}
    (result,) = await run(session, items(2), journal)
    assert (result.item, result.row) == (items(1)[0], (await journal.rows())[0])
    assert await tries_of(journal, "k0") == [
        (1, "failed", "job_0"),
        (2, "failed", "job_2"),
        (3, "completed", "job_3"),
    ]
    assert [(row.key, row.tries) for row in await journal.rows()] == [("k0", 3), ("k1", 1)]
    assert (session.agents, session.labels["p0"]) == ({"p0": 3, "p1": 1}, "k0")


async def test_a_try_is_kept_as_it_was(journal: Journal) -> None:
    """An earlier try keeps its job, its error, its times and its polls; the new one begins without any of them."""
    session = FakeSession()
    session.ends = {"p0": "archived"}
    await run(session, items(1), journal)
    (before,) = await journal.rows()
    await journal.retry("k0")
    earlier, now = await journal.rows(all_tries=True)
    assert earlier == before
    assert (now.state, now.tries, now.polls, now.number) == (State.PLANNED, 2, 0, before.number)
    gone: list[str] = ["job_id", "pr_link", "error", "sent_at", "created_at", "seen_at", "ended_at", "traceparent"]
    assert {getattr(now, name) for name in gone} == {None}


async def moved_on(journal: Journal, session: FakeSession, how: str) -> None:
    """Let an item move on while its create is under way: its outcome is unknown to somebody else, who settles it."""
    await session.creates(1)
    claim = await claim_of(journal.store, "k0")
    assert await records_of(journal).unknown("k0", claim, ValueError("its owner counted as dead"))
    if how == "abandoned":
        await journal.abandon("k0")
        await journal.retry("k0")
    else:
        await journal.resolve("k0", send_again=True)


@pytest.mark.parametrize("how", ["sent again", "abandoned"])
async def test_a_late_answer(journal: Journal, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """A create that is answered after its item was planned again is recorded with its try, and polled to its end.

    The run waits for that, and never tells it as the end of its key: the next run does so, by the job of the new try.
    """
    session = FakeSession(duration=100.0)
    session.answers = {"p0": [LATE_SECONDS]}
    running = asyncio.create_task(run(session, items(1), journal))
    await moved_on(journal, session, how)
    assert await running == []
    assert await tries_of(journal, "k0") == [(1, "completed", "job_0"), (2, "planned", None)]
    assert "'k0' has another job by now; its earlier create gave docs~.job_0" in caplog.text
    (result,) = await run(session, (), journal)
    assert (result.item.key, result.ref, str(result.outcome)) == ("k0", JobRef("docs", "job_1"), "completed")
    assert await tries_of(journal, "k0") == [(1, "completed", "job_0"), (2, "completed", "job_1")]
    assert (await journal.rows(all_tries=True))[0].error == "its create was answered late"


async def test_a_late_job_is_polled_beside_the_items(journal: Journal) -> None:
    """A run that goes on polls the late job to its end, while its other items are under way."""
    session = FakeSession(duration=100.0)
    session.answers = {"p0": [LATE_SECONDS], "p1": [200.0]}
    running = asyncio.create_task(run(session, items(2), journal))
    await moved_on(journal, session, "sent again")
    assert outcomes(await running) == {"k1": "completed"}
    assert await tries_of(journal, "k0") == [(1, "completed", "job_0"), (2, "planned", None)]


async def test_a_late_answer_of_a_row_that_was_given_another_job(journal: Journal) -> None:
    """A create that is answered after a person has named another job is kept as a try of its own beside the row.

    The run waits for the job that the person named, and tells its end alone.
    """
    session = FakeSession(duration=100.0)
    session.answers = {"p0": [LATE_SECONDS]}
    running = asyncio.create_task(run(session, items(1), journal))
    await session.creates(1)
    claim = await claim_of(journal.store, "k0")
    assert await records_of(journal).unknown("k0", claim, ValueError("its owner counted as dead"))
    await journal.resolve("k0", job_id="job_9")
    (result,) = await running
    assert (result.ref, str(result.outcome)) == (JobRef("docs", "job_9"), "completed")
    found = await tries_of(journal, "k0")
    assert [(state, job) for _, state, job in found if job == "job_9"] == [("completed", "job_9")]
    assert [job for *_, job in found] == ["job_0", "job_9"]


async def test_a_late_answer_is_recorded_once(journal: Journal) -> None:
    """A late answer that is recorded once more, when its commit was not heard of, changes nothing."""
    await journal.add(items(1))
    await unknown_by_hand(journal, "k0")
    claim, records = await claim_of(journal.store, "k0"), records_of(journal)
    await journal.resolve("k0", send_again=True)
    for _ in range(2):
        assert await records.created("k0", claim, JobRef("docs", "job_0"), None) is None
    assert await tries_of(journal, "k0") == [(1, "active", "job_0"), (2, "planned", None)]


async def test_a_retry_beside_a_run(journal: Journal) -> None:
    """What a person tries again while a run is under way is left to the next run: a run tells of an item once."""
    session = FakeSession(duration=10.0)
    session.ends = {"p0": "failed"}
    session.answers = {"p1": [100.0]}
    told: list[Any] = []
    async with run_batch(session.session, items(2), journal=journal) as results:
        told.append(await anext(results))
        await journal.retry("k0")
        told += [result async for result in results]
    assert outcomes(told) == {"k0": "failed", "k1": "completed"}
    assert states(await journal.rows()) == {"k0": "planned", "k1": "completed"}
    rows: list[JournalRow] = await journal.rows(State.PLANNED)
    assert [row.tries for row in rows] == [2]


async def test_what_is_planned_once_more_since_the_run_began(journal: Journal) -> None:
    """A run sends no item once more of which it has told, however late it comes to read that row: the next run does."""
    await journal.add(items(250))
    await created_by_hand(journal, "k249", JobRef("docs", "by_hand"))
    session = FakeSession()
    session.prompts, session.ends = {"by_hand": "p249"}, {"p249": "failed"}
    found: list[str] = []
    async with run_batch(session.session, (), journal=journal, max_active=1) as results:
        async for result in results:
            found.append(result.item.key)
            if result.item.key == "k249":
                assert str(result.outcome) == "failed"
                await journal.retry("k249")
    assert (len(found), found.count("k249")) == (250, 1)
    assert await tries_of(journal, "k249") == [(1, "failed", "by_hand"), (2, "planned", None)]
