import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    CreateOutcome,
    InvalidInputError,
    JobRef,
    JobStatus,
    SessionClosedError,
)
from agentjobs_async.batch import BatchItem, Journal, JournalRow, Limits, Where, run_batch
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import NO_KEYS, FakeSession, unused, with_outcome
from tests.durable.listener import Listener, complete
from tests.held import HeldEmulator
from tests.until import until


async def test_end(emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """A submitted job is created, followed and told with its context; afterwards its end is in the journal."""
    async with DurableJobs(session, journal, on_change=listener.on_change, on_end=listener.on_end) as jobs:
        entry = await jobs.submit("message-1", "Hello", context={"chat": 7, "names": ["a"]})
        assert (entry.key, entry.state, entry.context) == ("message-1", "active", {"chat": 7, "names": ["a"]})
        assert entry.job is not None
        assert entry.ref == entry.job.ref
        await listener.ends(1)
        assert listener.called == [("message-1", "completed")]
        assert {entry.context["chat"] for entry in listener.entries} == {7}
    rows = await journal.rows()
    assert [(row.state, row.context) for row in rows] == [("completed", {"chat": 7, "names": ["a"]})]
    assert emulator.agents_started == {"Hello": 1}


async def test_same_key(emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """The same key is the same job, at the same time and later; the first context is kept."""
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        entries = await asyncio.gather(*(jobs.submit("k", "Hello", context={"n": n}) for n in range(5)))
        assert len({entry.ref for entry in entries}) == 1
        await listener.ends(1)
        again = await jobs.submit("k", "Hello")
        assert (again.ref, again.context) == (entries[0].ref, {"n": 0})
    assert emulator.agents_started == {"Hello": 1}
    assert len(listener.called) == 1


async def test_contexts_of_one_create(session: AgentJobsSession, file_journal: Journal) -> None:
    """Callers that wait for the same create get a context each: what one changes in it, the others do not see."""
    async with DurableJobs(session, file_journal) as jobs:
        first, second = await asyncio.gather(*(jobs.submit("k", "Hello", context={"names": ["a"]}) for _ in range(2)))
        first.context["names"].append("b")
    assert second.context == {"names": ["a"]}


async def test_another_job_of_a_key(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """Another prompt, project or extra under a key of the journal is refused."""
    extra = {"branch": "main"}
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "Hello", project_id="docs", extra=extra)
        await jobs.submit("k", "Hello", project_id="docs", extra=dict(extra))
        for prompt, project_id, other in (
            ("Bye", None, extra),
            ("Hello", "other", extra),
            ("Hello", None, None),
            ("Hello", None, {"branch": "other"}),
        ):
            with pytest.raises(InvalidInputError, match="another prompt, project, extra or user") as caught:
                await jobs.submit("k", prompt, project_id=project_id, extra=other)
            assert caught.value.reason == "key_taken"
    assert emulator.agents_started == {"Hello": 1}


@pytest.mark.parametrize("extra", [{"prompt": "x"}, {"a": float("nan")}, "branch", {"a": "x" * 16_384}])
async def test_wrong_extras(emulator: Emulator, session: AgentJobsSession, file_journal: Journal, extra: Any) -> None:
    """An extra that can't be sent is refused before anything is planned."""
    async with DurableJobs(session, file_journal) as jobs:
        with pytest.raises(InvalidInputError, match="extra"):
            await jobs.submit("k", "Hello", extra=extra)
        assert await jobs.get("k") is None
    assert emulator.requests == ()


async def test_extra(emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """An extra is sent with the create, and every entry of the key has it, before the end and after it."""
    extra = {"branch": "main", "tags": ["a"]}
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        entry = await jobs.submit("k", "Hello", extra=extra)
        plain = await jobs.submit("plain", "Bye")
        followed = await jobs.get("k")
        await listener.ends(2)
        ended = await jobs.get("k")
        entry.extra["tags"].append("b")
    assert followed is not None
    assert ended is not None
    assert (followed.extra, ended.extra, plain.extra) == (extra, extra, {})
    assert {told.key: told.extra for told in listener.entries} == {"k": extra, "plain": {}}
    bodies = [json.loads(request.body) for request in emulator.requests if request.method == "POST"]
    assert bodies == [{"prompt": "Hello", **extra}, {"prompt": "Bye"}]


async def test_a_key_of_another_default_project(emulator: Emulator, journal: Journal) -> None:
    """After a change of the default project, a key of the old one is refused, and does not return its job."""
    async with emulator.session(project_id="docs") as session, DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "Hello")
    async with emulator.session(project_id="web") as session, DurableJobs(session, journal) as jobs:
        with pytest.raises(InvalidInputError, match="another prompt, project, extra or user"):
            await jobs.submit("k", "Hello")
        same = await jobs.submit("k", "Hello", project_id="docs")
    assert same.ref is not None
    assert same.ref.project_id == "docs"
    assert emulator.agents_started == {"Hello": 1}


async def test_submit_without_waiting_for_the_create(file_journal: Journal, listener: Listener) -> None:
    """It returns a planned entry while the create is not answered; the job is followed all the same."""
    script = JobScript(duration=0.2)
    async with HeldEmulator(script=script, speed=20) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
            entry = await jobs.submit("k", "Hello", wait_for_create=False)
            assert (entry.state, entry.ref) == ("planned", None)
            emulator.release.set()
            again = await jobs.submit("k", "Hello")
            assert again.ref is not None
            await listener.ends(1)
        assert emulator.agents_started == {"Hello": 1}


async def test_restart(emulator: Emulator, session: AgentJobsSession, journal: Journal) -> None:
    """Leaving stops following, and loses nothing: the next block follows the job, and tells of its end."""
    first, second = Listener(), Listener()
    async with DurableJobs(session, journal, on_end=first.on_end) as jobs:
        ref = (await jobs.submit("k", "long", context={"chat": 1})).ref
    async with DurableJobs(session, journal, on_end=second.on_end) as jobs:
        assert [(entry.key, entry.ref) for entry in await jobs.active()] == [("k", ref)]
        await complete(emulator)
        await second.ends(1)
        assert await jobs.active() == []
    assert (first.called, second.called) == ([], [("k", "completed")])
    assert second.entries[0].context == {"chat": 1}
    assert emulator.agents_started == {"long": 1}


async def test_end_is_told_again_after_a_restart(session: AgentJobsSession, journal: Journal) -> None:
    """An end for which `on_end` has not returned is told again by the next block, and by none after that."""
    failing, good, late = Listener(failures=10), Listener(), Listener()
    async with DurableJobs(session, journal, on_end=failing.on_end) as jobs:
        await jobs.submit("k", "Hello")
        await failing.ends(1)
    polls = session.stats().polls
    async with DurableJobs(session, journal, on_end=good.on_end):
        await good.ends(1)
    assert session.stats().polls == polls + 1  # within the budget, as no read besides them is
    async with DurableJobs(session, journal, on_end=late.on_end) as jobs:
        entry = await jobs.get("k")
    assert entry is not None
    assert (entry.state, late.called) == ("completed", [])
    assert good.called == [("k", "completed")]
    assert good.entries[0].job is not None
    assert good.entries[0].job.created_at is not None  # as the service shows it


async def test_without_on_end(session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """A process without `on_end` follows a job and records its end, of which a later one that has it is told."""
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "Hello")
        while await jobs.active():  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0)
        assert (await jobs.submit("k", "Hello")).state == "completed"
    async with DurableJobs(session, journal, on_end=listener.on_end):
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_reads(session: AgentJobsSession, journal: Journal) -> None:
    """`get` and `active` return what is known of a job, with its last state, by conditions as in a journal."""
    async with DurableJobs(session, journal, on_change=lambda _entry, _job: None) as jobs:
        for key in ("chat-1/1", "chat-2/1"):
            await jobs.submit(key, "long")
        assert [entry.key for entry in await jobs.active()] == ["chat-1/1", "chat-2/1"]
        (entry,) = await jobs.active(Where(text="chat-2/"))
        assert entry.job is not None
        assert entry.job.status is JobStatus.ACTIVE
        assert await jobs.get("chat-2/1") == entry
        assert await jobs.get("chat-3/1") is None
        assert await jobs.unfollow("chat-3/1") is False
        with pytest.raises(InvalidInputError, match="where must be of type Where"):
            await jobs.active("chat-2/")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("key", [*NO_KEYS, None])
async def test_keys_that_no_job_can_have(session: AgentJobsSession, file_journal: Journal, key: Any) -> None:
    """A key that no job can have is refused by every call, without a look into the journal."""
    async with DurableJobs(session, file_journal) as jobs:
        with unused(file_journal):
            for call in (jobs.get, jobs.unfollow, jobs.abandon, jobs.retry):
                with pytest.raises(InvalidInputError, match=r"^key must"):
                    await call(key)


async def test_unfollow(emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """A job that is not followed any more goes on, and is told of by no block."""
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "long")
        assert await jobs.unfollow("k")
        assert not await jobs.unfollow("k")
        assert await jobs.active() == []
    await complete(emulator)
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        assert (await jobs.submit("k", "long")).state == "active"
        await jobs.submit("other", "Bye")
        await listener.ends(1)
    assert listener.called == [("other", "completed")]


@pytest.mark.parametrize("by", ["jobs", "journal"])
async def test_abandoned_before_it_is_sent(journal: Journal, listener: Listener, by: str) -> None:
    """A planned job can't be unfollowed, but abandoned: it is never sent, which all are told, until it is retried."""
    await journal.set_limits(Limits(max_sending=1))
    async with HeldEmulator(speed=20) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            first = asyncio.create_task(jobs.submit("first", "First"))
            await emulator.arrived.wait()
            waiting = asyncio.create_task(jobs.submit("k", "Hello"))
            await until(lambda: jobs.get("k"))
            with pytest.raises(InvalidInputError, match="'k' is planned: withdraw it by abandon"):
                await jobs.unfollow("k")
            await (jobs if by == "jobs" else journal).abandon("k")
            with pytest.raises(AgentJobsError, match=r"^'k' was abandoned while planned$") as raised:
                await waiting
            assert raised.value.public_message == "The job was withdrawn before it was started."
            await listener.ends(1)
            entry = await jobs.submit("k", "Hello")
            assert (entry.state, entry.ref, entry.error) == ("abandoned", None, "abandoned while planned")
            with pytest.raises(InvalidInputError, match="k is abandoned: only what is planned"):
                await jobs.abandon("k")
            assert not await jobs.unfollow("k")
            assert await journal.retry("k") == "k"
            emulator.release.set()
            await first
            await listener.ends(3)
    assert listener.called[0] == ("k", "AgentJobsError")
    assert sorted(listener.called[1:]) == [("first", "completed"), ("k", "completed")]
    assert emulator.agents_started == {"First": 1, "Hello": 1}


async def test_abandoned_as_it_is_planned(
    journal: Journal, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `submit` whose job is abandoned as soon as it is planned raises at once, whatever keeps creates waiting."""
    await journal.set_limits(Limits(max_sending=1))
    looked, abandoned = DurableRows.no_longer_followed, asyncio.Event()

    async def looking(rows: DurableRows, keys: Sequence[str]) -> set[str]:
        if "k" in keys:
            await abandoned.wait()
        return await looked(rows, keys)

    monkeypatch.setattr(DurableRows, "no_longer_followed", looking)
    async with HeldEmulator(speed=20) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            first = asyncio.create_task(jobs.submit("first", "First"))
            await emulator.arrived.wait()
            waiting = asyncio.create_task(jobs.submit("k", "Hello"))
            await until(lambda: jobs.get("k"))
            await jobs.abandon("k")
            abandoned.set()
            with pytest.raises(AgentJobsError, match=r"^'k' was abandoned while planned$"):
                await waiting
            await listener.ends(1)
            emulator.release.set()
            await first
    assert emulator.agents_started == {"First": 1}


async def test_abandoned_where_no_end_is_told(file_journal: Journal, listener: Listener) -> None:
    """Without an `on_end` here, the create of an abandoned job ends all the same, and a later block tells of it."""
    await file_journal.set_limits(Limits(max_sending=1))
    async with HeldEmulator(speed=20) as emulator, emulator.session(project_id="docs") as session:
        async with DurableJobs(session, file_journal) as jobs:
            first = asyncio.create_task(jobs.submit("first", "First"))
            await emulator.arrived.wait()
            waiting = asyncio.create_task(jobs.submit("k", "Hello"))
            await until(lambda: jobs.get("k"))
            await file_journal.abandon("k")
            with pytest.raises(AgentJobsError, match="abandoned while planned"):
                await waiting
            emulator.release.set()
            await first
        async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
            await listener.ends(2)
    assert sorted(listener.called) == [("first", "completed"), ("k", "AgentJobsError")]
    assert emulator.agents_started == {"First": 1}


@pytest.mark.parametrize("fault", ["", "429 on=create retry-after=1000"])
async def test_unfollow_while_it_is_sent(journal: Journal, listener: Listener, fault: str) -> None:
    """Unfollowing a job whose create is under way waits for the answer; where that says later, the job is planned."""
    script = JobScript(duration=1e6)
    async with HeldEmulator(speed=20, script=script) as emulator, emulator.session(project_id="docs") as session:
        if fault:
            await emulator.inject(fault)
        async with DurableJobs(session, journal, on_change=listener.on_change, on_end=listener.on_end) as jobs:
            await jobs.submit("k", "Hello", wait_for_create=False)
            await emulator.arrived.wait()
            unfollowing = asyncio.create_task(jobs.unfollow("k"))
            await asyncio.wait([unfollowing], timeout=0.2)
            assert not unfollowing.done()
            emulator.release.set()
            if fault:
                with pytest.raises(InvalidInputError, match="is planned"):
                    await unfollowing
            else:
                assert await unfollowing
            assert len(await jobs.active()) == bool(fault)
            await until(lambda: not session.stats().jobs)
    assert listener.called == []


@pytest.mark.parametrize("restarted", [False, True])
async def test_unfollowed_and_sent_again(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener, *, restarted: bool
) -> None:
    """An unknown job that is not followed any more is followed again where it is planned again: it is sent and told."""
    await emulator.inject("reset on=create", prompt="Hello")
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        assert (await jobs.submit("k", "Hello")).state == "unknown"
        assert await jobs.unfollow("k")
        if not restarted:
            await journal.resolve("k", send_again=True)
            await until(lambda: ("k", "completed") in listener.called)
    if restarted:
        await journal.resolve("k", send_again=True)
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            assert (await jobs.submit("k", "Hello")).state in {"active", "completed"}
            await until(lambda: ("k", "completed") in listener.called)
    assert emulator.agents_started == {"Hello": 2}


async def test_unfollowed_job_takes_no_slot(session: AgentJobsSession, journal: Journal) -> None:
    """A job that is not followed any more takes no slot of `max_active`: nobody would ever give it back."""
    await journal.set_limits(Limits(max_active=1))
    async with DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "long")
        assert await jobs.unfollow("k")
        async with asyncio.timeout(60):
            assert (await jobs.submit("other", "long")).state == "active"


async def test_job_that_a_session_can_not_send(file_journal: Journal, listener: Listener) -> None:
    """A create that is refused before any I/O is no end: the job stays planned, for a session that can send it."""
    session = FakeSession()
    session.answers["Hello"] = [with_outcome(InvalidInputError("not by this one"), CreateOutcome.NOT_SENT)]
    async with DurableJobs(session.session, file_journal, on_end=listener.on_end) as jobs:
        with pytest.raises(InvalidInputError, match="not by this one"):
            await jobs.submit("k", "Hello", project_id="docs")
        assert [(entry.key, entry.state) for entry in await jobs.active()] == [("k", "planned")]
    assert listener.called == []


async def test_unfollow_by_a_callback(session: AgentJobsSession, file_journal: Journal) -> None:
    """A callback may unfollow its own job."""
    left: asyncio.Queue[bool] = asyncio.Queue()

    async def leave(entry: Any, _job: Any) -> None:
        left.put_nowait(await jobs.unfollow(entry.key))

    async with DurableJobs(session, file_journal, on_change=leave) as jobs:
        await jobs.submit("k", "long")
        assert await left.get()
        assert await jobs.active() == []


async def test_item_of_a_batch(session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """The items of a batch in the same journal are left alone, until one is submitted."""
    async with run_batch(session, [BatchItem("a", "Hello"), BatchItem("b", "Hello")], journal=journal) as results:
        assert len([result async for result in results]) == 2
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        assert (await jobs.submit("b", "Hello")).state == "completed"
        await listener.ends(1)
    assert listener.called == [("b", "completed")]


async def test_misuse(session: AgentJobsSession, path: Any) -> None:
    """Arguments that make no sense are refused before anything is done."""
    journal = Journal.open(path)
    for arguments, settings, message in (
        ((None, journal), {}, "session must be"),
        ((session, "durable.db"), {}, "journal must be"),
        ((session, Journal.open(path, read_only=True)), {}, "read-only"),
        ((session, journal), {"on_change": 3}, "on_change must be"),
        ((session, journal), {"on_end": Listener}, "on_end must be"),
        ((session, journal), {"least_gap": -1}, "least_gap must be"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            DurableJobs(*arguments, **settings)
    with pytest.raises(InvalidInputError, match="not open"):
        async with DurableJobs(session, journal):
            pass
    assert not path.exists()


async def test_misuse_of_submit(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """A job that can't be sent is refused and not planned; outside of the block every call is."""
    async with emulator.session() as nameless:
        async with DurableJobs(nameless, file_journal) as without_project:
            with pytest.raises(InvalidInputError, match="project_id is missing"):
                await without_project.submit("k", "Hello")
        jobs = DurableJobs(session, file_journal)
        with pytest.raises(InvalidInputError, match="not open"):
            await jobs.submit("k", "Hello")
        async with jobs:
            for arguments, settings in ((("", "Hello"), {}), (("k", " "), {}), (("k", "p"), {"context": {"a": {1}}})):
                with pytest.raises(InvalidInputError):
                    await jobs.submit(*arguments, **settings)  # type: ignore[arg-type]  # what is refused
        with pytest.raises(SessionClosedError):
            await jobs.get("k")
        with pytest.raises(InvalidInputError, match="entered once"):
            async with jobs:
                pass
        assert await file_journal.rows() == []


@pytest.mark.parametrize("again", [False, True])
async def test_settled_while_its_end_is_told(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener, *, again: bool
) -> None:
    """An unknown create is told, and not sent again by itself; once it is settled, its job is followed at once.

    It is so also while `on_end` is under way, which is called again once that call has returned.
    """
    await emulator.inject("reset on=create", prompt="long")
    returning = asyncio.Event()

    async def end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        await listener.on_end(entry, ended)
        await returning.wait()

    async with DurableJobs(session, journal, on_end=end) as jobs:
        entry = await jobs.submit("k", "long")
        assert (entry.state, entry.ref) == ("unknown", None)
        await listener.ends(1)
        assert (await jobs.submit("k", "long")).state == "unknown"
        job_id = None if again else JobRef("docs", next(iter(emulator.jobs)))
        await journal.resolve("k", job_id=job_id, send_again=again)
        await until(lambda: session.stats().jobs)
        await complete(emulator)
        await until(lambda: not session.stats().jobs)
        assert len(listener.called) == 1
        returning.set()
        await listener.ends(2)
    assert listener.called == [("k", "CreateOutcomeUnknownError"), ("k", "completed")]
    assert emulator.agents_started == {"long": 1 + again}


async def test_unknown_again(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """If the second create of a job is unknown, too, that is an end of its own: told until `on_end` has returned."""
    await emulator.inject("reset on=create forever", prompt="Hello")
    for listener in (Listener(), Listener(failures=9), Listener()):
        async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
            await jobs.submit("k", "Hello")
            await listener.ends(1)
        if not listener.failures:
            await file_journal.resolve("k", send_again=True)
    assert listener.called == [("k", "CreateOutcomeUnknownError")]


@pytest.mark.parametrize("seen_first", ["the abandoning", "the end"])
async def test_abandoned(
    emulator: Emulator,
    session: AgentJobsSession,
    file_journal: Journal,
    listener: Listener,
    seen_first: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that is abandoned while it is followed has ended as that, also where its own end is seen first."""
    work = Records.ended

    async def abandon_first(records: Records, *ended: Any) -> JournalRow | None:
        await file_journal.abandon("k")
        return await work(records, *ended)

    monkeypatch.setattr(Records, "ended", abandon_first)
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "long")
        await (complete(emulator) if seen_first == "the end" else file_journal.abandon("k"))
        await listener.ends(1)
        assert session.stats().jobs == 0
    assert listener.called == [("k", "AgentJobsError")]


async def test_two_blocks_on_one_journal(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """Two blocks over one open journal share it: each job has one agent, and each end is told by one of them."""
    first, second = Listener(), Listener()
    async with (
        DurableJobs(session, file_journal, on_end=first.on_end) as one,
        DurableJobs(session, file_journal, on_end=second.on_end) as other,
    ):
        entries = await asyncio.gather(*(jobs.submit("k", "long") for jobs in (one, other)))
        await complete(emulator)
        await first.ends(1)
    assert len({entry.ref for entry in entries}) == 1
    assert (first.called, second.called) == ([("k", "completed")], [])
    assert emulator.agents_started == {"long": 1}


async def test_retried(emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """A failed job that the journal's owner retries is followed again, with its context."""
    emulator.script(JobScript(duration=0.2, outcome="failed"), prompt="Hello")
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "Hello", context={"chat": 1})
        await listener.ends(1)
        emulator.script(JobScript(duration=0.2), prompt="Hello")
        await journal.retry("k")
        await listener.ends(2)
        entry = await jobs.get("k")
        assert entry is not None
        assert (entry.key, entry.state) == ("k", "completed")
        assert await jobs.submit("k", "Hello") == entry
    assert listener.called == [("k", "failed"), ("k", "completed")]
    assert listener.entries[1].context == {"chat": 1}


async def test_retry_that_is_unfollowed(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """The key of a job that was tried again means its newest try, also where it is unfollowed."""
    emulator.script(JobScript(duration=0.2, outcome="failed"), prompt="Hello")
    listener = Listener()
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "Hello")
        await listener.ends(1)
        emulator.script(JobScript(duration=1e6), prompt="Hello")
        await file_journal.retry("k")
        assert [entry.key for entry in await jobs.active()] == ["k"]
        await until(lambda: session.stats().jobs)
        assert await jobs.unfollow("k")
        assert await jobs.active() == []


async def test_limit_of_polls(session: AgentJobsSession, journal: Journal) -> None:
    """The polls per second that the journal keeps hold while the block is open, and not after it."""
    await journal.set_limits(Limits(polls_per_second=12.0))
    async with DurableJobs(session, journal):
        (share,) = session._limits._shares.values()
        assert share.per_second == pytest.approx(12, rel=0.06)  # owners of a database share 95 % of it
    assert not session._limits._shares
