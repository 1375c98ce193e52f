"""Items that are read back by their keys, and by their jobs, with contexts that are replaced."""

from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import insert, select

from agentjobs_async import AgentJob, InvalidInputError, JobRef
from agentjobs_async.batch import BatchItem, Journal, Where
from agentjobs_async.batch._database.schema import OF_A_TRY, TRIES
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.tries import rows_with_job
from tests.batch.plans import BY_NUMBER, analyse, plans_of, without
from tests.batch.stage import created_by_hand, items, records_of, sent_by_hand, unused


async def test_get(journal: Journal, location: str) -> None:
    """The row of a key is returned as it is now, by a read-only journal too; without one, `None`."""
    await journal.add([BatchItem("k", "p", "docs", {"page": 7}), *items(2)])
    await created_by_hand(journal, "k", JobRef("docs", "job_1"))
    async with Journal.open(location, read_only=True) as looking:
        for opened in (journal, looking):
            row = await opened.get("k")
            assert row is not None
            assert (row.key, row.state, row.job_id, row.context) == ("k", "active", "job_1", {"page": 7})
            assert await opened.get("missing") is None
            assert await opened.get("k#2") is None


async def ended(journal: Journal, key: str, job_id: str, status: str) -> None:
    claim = await sent_by_hand(journal, key)
    await records_of(journal).created(key, claim, JobRef("docs", job_id), None)
    await records_of(journal).ended(key, AgentJob(job_id, "docs", status), 1)


async def test_find(journal: Journal, location: str) -> None:
    """A job's id or its ref finds the row of its item, as that is now, also where an earlier try had the job."""
    await journal.add([BatchItem("k", "p", "docs"), *items(2)])
    await ended(journal, "k", "job_1", "failed")
    await journal.retry("k")
    async with Journal.open(location, read_only=True) as looking:
        for job in ("job_1", JobRef("docs", "job_1")):
            row = await looking.find(job)
            assert row is not None
            assert (row.key, row.state, row.job_id, row.tries) == ("k", "planned", None, 2)
        await ended(journal, "k", "job_2", "completed")
        for job in ("job_1", "job_2", JobRef("docs", "job_2")):
            row = await looking.find(job)
            assert row is not None
            assert (row.key, row.state, row.job_id) == ("k", "completed", "job_2")
        for job in ("job_3", "k", JobRef("web", "job_1"), JobRef("docs", "p~.q"), JobRef("docs", "a b")):
            assert await looking.find(job) is None


async def test_a_job_of_several_items(journal: Journal) -> None:
    """An id of jobs in two projects is refused, and their refs tell them apart; a job of two items is never guessed."""
    await journal.add([BatchItem("a", "p", "docs"), BatchItem("b", "p", "web"), BatchItem("c", "p", "web")])
    await created_by_hand(journal, "a", JobRef("docs", "job_1"))
    await created_by_hand(journal, "b", JobRef("web", "job_1"))
    with pytest.raises(InvalidInputError, match=r"several items \('a', 'b'\): pass JobRef\(project_id, job_id\)"):
        await journal.find("job_1")
    found = [await journal.find(JobRef(project, "job_1")) for project in ("docs", "web")]
    assert [row and row.key for row in found] == ["a", "b"]
    await created_by_hand(journal, "c", JobRef("web", "job_1"))
    with pytest.raises(InvalidInputError, match=r"^web~.job_1 is the job of several items \('b', 'c'\)"):
        await journal.find(JobRef("web", "job_1"))


async def test_what_can_be_no_job(file_journal: Journal) -> None:
    """A token, a prompt and what is no text are refused before the journal is read; the error says what to pass."""
    wrong: list[tuple[Any, str]] = [("web~.job_1", r"JobRef\.from_token.*JobRef\(project_id, job_id\)")]
    wrong += [("Fix it", "create_job"), ("", "job_id"), ("..", "job_id"), ("a\0", "job_id"), (7, "job_id")]
    with unused(file_journal):
        for job, words in wrong:
            with pytest.raises(InvalidInputError, match=words):
                await file_journal.find(job)


async def test_set_context(journal: Journal) -> None:
    """Another context replaces that of a row in any state; nothing else changes, and streams see the row anew."""
    keys = ["planned", "sending", "active", "ended", "retried"]
    await journal.add([BatchItem(key, "p", "docs", {"n": 1}) for key in keys])
    await sent_by_hand(journal, "sending")
    await created_by_hand(journal, "active", JobRef("docs", "job_1"))
    await ended(journal, "ended", "job_2", "completed")
    await ended(journal, "retried", "job_3", "failed")
    await journal.retry("retried")
    before = {row.key: row for row in await journal.rows()}
    since = await measures.last_change(journal.store)
    contexts: list[dict[str, Any] | None] = [{"chat": "7", "é\0": [1.5, None, {"a": True}]}, {}, None]
    for context in contexts:
        for key in keys:
            await journal.set_context(key, context)
            assert await journal.get(key) == evolve(before[key], context=context)
            assert await measures.last_change(journal.store) > since
            since = await measures.last_change(journal.store)
    await journal.set_context("retried", {"n": 2})
    tries = await journal.rows(where=Where(key="retried"), all_tries=True)
    assert [row.context for row in tries] == [{"n": 2}, {"n": 2}]


async def test_a_context_is_kept_beside_a_move(journal: Journal) -> None:
    """A create that is answered after its item got another context is recorded, and the context stays."""
    await journal.add(items(1))
    claim = await sent_by_hand(journal, "k0")
    await journal.set_context("k0", {"n": 2})
    await records_of(journal).created("k0", claim, JobRef("docs", "job_1"), None)
    row = await journal.get("k0")
    assert row is not None
    assert (row.state, row.job_id, row.context) == ("active", "job_1", {"n": 2})


async def test_wrong_contexts(file_journal: Journal) -> None:
    """What can be no context is refused before the journal is used; so is a key without a row."""
    wrong: list[Any] = ["x", [1], {"a": float("nan")}, {1: 2}, {"a": "\ud800"}, {"a": "x" * 16_384}, {"a": (1,)}]
    with unused(file_journal):
        for context in wrong:
            with pytest.raises(InvalidInputError, match="context must"):
                await file_journal.set_context("k", context)
        with pytest.raises(InvalidInputError, match="key must"):
            await file_journal.set_context("a\n", {})
    with pytest.raises(InvalidInputError, match="no item of the key 'k'"):
        await file_journal.set_context("k", {})


async def test_the_key_of_an_item(journal: Journal) -> None:
    """The item of a row, and of each earlier try, has the user's own key, however often it was tried again."""
    item = BatchItem("page#7", "p", "docs", {"n": 1}, {"branch": "main"})
    await journal.add([item])
    for number in range(3):
        await ended(journal, item.key, f"job_{number}", "failed")
        await journal.retry(item.key)
    rows = await journal.rows(all_tries=True)
    assert [(row.tries, row.item) for row in rows] == [(number, item) for number in range(1, 5)]


async def test_an_index_finds_jobs(journal: Journal) -> None:
    """Indexes find the rows and the earlier tries of a job, with old statistics of the database and with new."""
    await journal.add(items(600))
    for number in range(20):
        await ended(journal, f"k{number}", f"job_{number}", "failed")
        await journal.retry(f"k{number}")
        await created_by_hand(journal, f"k{number}", JobRef("docs", f"job_{number}.2"))
    others = [TRIES.c[name] for name in OF_A_TRY if name != "job_id"]
    for _ in range(7):  # each doubles the earlier tries
        same = select(TRIES.c.item, TRIES.c.try_number, TRIES.c.job_id.concat("."), *others)
        names = ["item", "try_number", "job_id", *(column.name for column in others)]
        await journal.store.write(insert(TRIES).from_select(names, same))
    for _ in range(2):
        for job in ("job_7", JobRef("docs", "job_7.2")):
            by_job, by_number = await plans_of(journal, lambda job=job: rows_with_job(journal.store, job, 5))  # type: ignore[misc]  # of this turn
            for index in (r"items_by_job\b", r"tries_by_job\b"):
                assert without(index, [by_job]) == []
            assert without(BY_NUMBER, [by_number]) == []
        await analyse(journal)
