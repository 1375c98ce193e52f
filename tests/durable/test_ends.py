"""Each end of each try is told, and none after the job was unfollowed."""

import asyncio
from typing import Any

import pytest

from agentjobs_async import AgentJob, AgentJobsSession, JournalError
from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.durable import DurableEntry, DurableJobs, RetryLater, Undeliverable
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.silence import NEVER
from tests.durable.listener import Listener, complete
from tests.held import HeldEmulator
from tests.until import until


async def test_ends_of_both_tries(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener
) -> None:
    """Where a job is retried before its end was told, the next start tells both ends, in their order."""
    emulator.script(JobScript(duration=0.2, outcome="failed"), prompt="Hello")
    failing = Listener(failures=10)
    async with DurableJobs(session, journal, on_end=failing.on_end) as jobs:
        await jobs.submit("k", "Hello", context={"chat": 1})
        await failing.ends(1)
    await journal.retry("k")
    emulator.script(JobScript(duration=0.2), prompt="Hello")
    async with DurableJobs(session, journal, on_end=listener.on_end):
        await listener.ends(2)
    assert listener.called == [("k", "failed"), ("k", "completed")]
    assert [entry.context for entry in listener.entries] == [{"chat": 1}, {"chat": 1}]
    assert len({entry.ref for entry in listener.entries}) == 2
    async with DurableJobs(session, journal, on_end=(late := Listener()).on_end) as jobs:
        await jobs.submit("other", "Bye")
        await late.ends(1)
    assert late.called == [("other", "completed")]


async def test_retried_while_its_end_is_told(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener
) -> None:
    """A job that is retried while `on_end` is under way: that call is the only one for the first end."""
    emulator.script(JobScript(duration=0.2, outcome="failed"), prompt="Hello")
    returning = asyncio.Event()

    async def end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        await listener.on_end(entry, ended)
        await returning.wait()

    async with DurableJobs(session, journal, on_end=end) as jobs:
        await jobs.submit("k", "Hello")
        await listener.ends(1)
        emulator.script(JobScript(duration=0.2), prompt="Hello")
        await journal.retry("k")
        await until(lambda: emulator.agents_started["Hello"] == 2)
        returning.set()
        await listener.ends(2)
    assert listener.called == [("k", "failed"), ("k", "completed")]


async def test_told_later(
    session: AgentJobsSession, journal: Journal, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that a chat wants later is told again after the time it named; one that can't be delivered is told."""
    monkeypatch.setattr("agentjobs_async.durable.delivery._SHORTEST_SECONDS", 0.0)
    told = asyncio.Event()

    async def end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        await listener.on_end(entry, ended)
        if len(listener.called) < 4:
            raise RetryLater(0)
        told.set()
        raise Undeliverable("blocked")

    async with DurableJobs(session, journal, on_end=end) as jobs:
        await jobs.submit("k", "Hello")
        await told.wait()
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        await jobs.submit("other", "Bye")
        await listener.ends(5)
    assert listener.called == [*[("k", "completed")] * 4, ("other", "completed")]


async def test_item_that_a_batch_works_on(journal: Journal, listener: Listener) -> None:
    """A durable job whose create a batch sends, and whose job it polls, is told while that batch is open."""
    async with HeldEmulator(script=JobScript(duration=0.2), speed=20) as emulator:
        async with emulator.session(project_id="docs") as one, emulator.session(project_id="docs") as session:
            async with run_batch(one, [BatchItem("k", "Hello")], journal=journal) as results:
                batch = asyncio.ensure_future(anext(results))
                await emulator.arrived.wait()
                async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
                    submitting = asyncio.create_task(jobs.submit("k", "Hello"))
                    await until(lambda: journal.store.rows_of(["k"]))
                    emulator.release.set()
                    await listener.ends(1)
                    assert (await submitting).ref is not None
                    assert session.stats().polls == 1  # a read of the end, which is told
                assert (await batch).outcome == "completed"
        assert emulator.agents_started == {"Hello": 1}
    assert listener.called == [("k", "completed")]


@pytest.mark.slow
async def test_moves_by_another_process(emulator: Emulator, session: AgentJobsSession, laid_out: str) -> None:
    """What another process does to a followed job is noticed by the next sweep: abandon, retry, send again."""
    listener = Listener()
    await emulator.inject("reset on=create", prompt="lost")
    async with Journal.open(laid_out, owner_timeout=NEVER) as one, Journal.open(laid_out, owner_timeout=NEVER) as other:
        async with DurableJobs(session, one, on_end=listener.on_end) as jobs:
            await jobs.submit("a", "long")
            await jobs.submit("b", "lost")
            await listener.ends(1)
            await other.abandon("a")
            await listener.ends(2)
            await other.resolve("b", send_again=True)
            await listener.ends(3)
            await other.retry("a")
            await complete(emulator)
            await listener.ends(4)
    told = [("b", "CreateOutcomeUnknownError"), ("a", "AgentJobsError"), ("b", "completed"), ("a", "completed")]
    assert listener.called == told
    assert emulator.agents_started == {"long": 2, "lost": 2}


async def test_retried_as_its_create_ends(
    emulator: Emulator, file_journal: Journal, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is abandoned and retried while its claim is at a disk that fails is sent all the same."""
    claim, asked, failing = Records.claim, asyncio.Event(), asyncio.Event()

    async def claimed(records: Records, key: str, *rest: Any) -> Any:
        if not asked.is_set():
            asked.set()
            await failing.wait()
            raise JournalError("the commit failed", "io")
        return await claim(records, key, *rest)

    monkeypatch.setattr(Records, "claim", claimed)
    noticed = asyncio.Event()
    notice = DurableRows.notice

    async def noticing(rows: DurableRows, *arguments: Any, **settings: Any) -> Any:
        found = await notice(rows, *arguments, **settings)
        if any(each.row.tries == 2 for each in found):
            noticed.set()
        return found

    monkeypatch.setattr(DurableRows, "notice", noticing)
    async with emulator.session(project_id="docs") as session:
        async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
            await jobs.submit("k", "Hello", wait_for_create=False)
            await asked.wait()
            await jobs.abandon("k")
            await listener.ends(1)
            await file_journal.retry("k")
            await noticed.wait()
            failing.set()
            await listener.ends(2)
    assert listener.called == [("k", "AgentJobsError"), ("k", "completed")]
    assert emulator.agents_started == {"Hello": 1}


async def test_notice_whose_answer_was_lost(
    session: AgentJobsSession, file_journal: Journal, listener: Listener
) -> None:
    """What counts as noticed, since only the answer of the journal was lost, is noticed by the next sweep."""
    notice = DurableRows.notice
    lost: list[str] = []

    async def losing(rows: DurableRows, *arguments: Any, **settings: Any) -> Any:
        found = await notice(rows, *arguments, **settings)
        if found and not lost:
            lost.append(found[0].row.key)
            raise JournalError("the answer was lost", "io")
        return found

    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "long")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DurableRows, "notice", losing)
            await file_journal.abandon("k")
            await until(lambda: lost)
        await listener.ends(1)
    assert listener.called == [("k", "AgentJobsError")]


async def test_no_callback_begins_once_unfollowed(
    session: AgentJobsSession, file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the journal can't be read no callback begins, so that none does for a job that is unfollowed by then."""
    reading, failed, broken = DurableRows.followed, asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def read(rows: DurableRows, key: str) -> Any:
        if broken.is_set():
            failed.set()
            raise JournalError("disk I/O error", "io")
        return await reading(rows, key)

    monkeypatch.setattr(DurableRows, "followed", read)
    monkeypatch.setattr("agentjobs_async.durable._following._FIRST_RETRY_SECONDS", 0.01)
    async with DurableJobs(session, file_journal, on_end=lambda entry, _: told.append(entry.key)) as jobs:
        await jobs.submit("k", "Hello")
        broken.set()
        await failed.wait()
        assert await jobs.unfollow("k")
        broken.clear()
        await jobs.submit("other", "Bye")
        await until(lambda: told)
    assert told == ["other"]


async def test_callback_that_was_about_to_begin(session: AgentJobsSession, file_journal: Journal) -> None:
    """A callback whose task was made, and had not begun as its job was unfollowed, does not begin."""
    told: list[str] = []
    async with DurableJobs(session, file_journal, on_end=lambda entry, _: told.append(entry.key)) as jobs:
        following = jobs._following
        await jobs.submit("k", "Hello")
        while "k" not in following._calls:  # noqa: ASYNC110 - the turn of the loop in which its task is made
            await asyncio.sleep(0)
        following.leave("k")
        await jobs.submit("other", "Bye")
        await until(lambda: "other" in told)
    assert told == ["other"]


async def test_another_look_at_what_was_told(
    session: AgentJobsSession, journal: Journal, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that is told while another look at its row is due, as after a withdrawal amid a claim, is told once."""
    monkeypatch.setattr("agentjobs_async.durable._noticing._SWEEP_SECONDS", 86_400.0)

    async def end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        await jobs._rows.look_again(entry.key)
        await listener.on_end(entry, ended)

    async with DurableJobs(session, journal, on_end=end) as jobs:
        await jobs.submit("k", "Hello")
        await until(lambda: listener.called and not jobs._following.under_way())
        await jobs._noticing.notice()
        await until(lambda: not jobs._following.under_way())
    assert listener.called == [("k", "completed")]
