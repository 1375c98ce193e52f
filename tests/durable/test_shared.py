"""Durable jobs and a batch on one journal: each create is sent, and each job polled, by one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import frozen

from agentjobs_async import AgentJobsSession
from agentjobs_async.batch import BatchItem, BatchResult, Journal, run_batch
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._run.supply import Supply
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.durable.listener import Listener, complete
from tests.held import HeldEmulator
from tests.until import until


@frozen
class _Both:
    """Durable jobs and a batch that are about to send the create of the same row.

    Attributes:
        session: That of the durable jobs.
        jobs: The durable jobs.
        submitting: What a `submit` of the row returns.
        result: What the batch gives.
        claim: Set by the test: from then on the durable jobs claim the row, after the batch.
    """

    session: AgentJobsSession
    jobs: DurableJobs
    submitting: asyncio.Task[DurableEntry]
    result: asyncio.Task[BatchResult]
    claim: asyncio.Event


@asynccontextmanager
async def _both(emulator: Emulator, journal: Journal, listener: Listener, prompt: str) -> AsyncIterator[_Both]:
    claim, asked, may_claim = Records.claim, asyncio.Event(), asyncio.Event()

    async def claimed(records: Records, key: str, *rest: Any) -> Any:
        if records.owner == batch_owner:
            await asked.wait()
        else:
            asked.set()
            await may_claim.wait()
        return await claim(records, key, *rest)

    async with emulator.session(project_id="docs") as one, emulator.session(project_id="docs") as other:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Records, "claim", claimed)
            async with run_batch(one, [BatchItem("k", prompt)], journal=journal) as results:
                (batch_owner,) = journal._opened.owners.own
                async with DurableJobs(other, journal, on_end=listener.on_end) as jobs:
                    result = asyncio.ensure_future(anext(results))
                    await until(lambda: journal.store.rows_of(["k"]))
                    submitting = asyncio.create_task(jobs.submit("k", prompt))
                    await asked.wait()
                    yield _Both(other, jobs, submitting, result, may_claim)


async def test_create_that_a_batch_is_sending(journal: Journal, listener: Listener) -> None:
    """`submit` waits for the answer to a create that a batch began to send before this process could."""
    async with HeldEmulator(script=JobScript(duration=0.2), speed=20) as emulator:
        async with _both(emulator, journal, listener, "Hello") as both:
            await emulator.arrived.wait()
            both.claim.set()
            await until(lambda: both.jobs._creates.answer_to("k") is None)
            emulator.release.set()
            assert (await both.submitting).ref is not None
            await listener.ends(1)
            assert (await both.result).outcome == "completed"
    assert listener.called == [("k", "completed")]
    assert emulator.agents_started == {"Hello": 1}


async def test_job_that_a_batch_created(emulator: Emulator, journal: Journal, listener: Listener) -> None:
    """A job that a batch created before this process could is polled by the batch alone, which gives its result."""
    async with _both(emulator, journal, listener, "long") as both:
        await until(lambda: journal.rows("active"))
        both.claim.set()
        assert (await both.submitting).state == "active"
        await complete(emulator)
        await listener.ends(1)
        assert both.session.stats().polls == 1  # a read of the end, which is told
        assert (await both.result).outcome == "completed"
    assert listener.called == [("k", "completed")]


async def test_unfollowed_item_of_a_batch(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job of a batch's item that was submitted and unfollowed stays with that batch: no other one polls it."""
    has_others, looked = Supply._has_others, asyncio.Event()

    async def looking(supply: Supply) -> bool:
        found = await has_others(supply)
        looked.set()
        return found

    monkeypatch.setattr(Supply, "_has_others", looking)
    items = [BatchItem("k", "long")]
    async with emulator.session(project_id="docs") as one, emulator.session(project_id="docs") as two:
        async with DurableJobs(session, journal) as jobs, run_batch(one, items, journal=journal) as results:
            result = asyncio.ensure_future(anext(results))
            await until(lambda: one.stats().jobs)
            await jobs.submit("k", "long")
            assert await jobs.unfollow("k")
            async with run_batch(two, items, journal=journal) as others:
                other = asyncio.ensure_future(anext(others, None))
                await until(lambda: looked.is_set() or two.stats().jobs)
                await complete(emulator)
                assert (await result).outcome == "completed"
                assert await other is None
        assert two.stats().polls == 0
