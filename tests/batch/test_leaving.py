"""Leaving a journal whose database is gone: within the stated bounds, whatever it does."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from agentjobs_async import AgentJob, JobRef, JournalError
from agentjobs_async.batch import BatchWorker, Journal, State, run_batch
from tests.batch.stage import BY_HAND, FOREVER, FakeSession, items, records_of
from tests.batch.wire import Wire, wired
from tests.until import until

CLOSING = 40.0
"""What leaving may take at most, in seconds, on however busy a machine.

Without a bound, a server that does not answer is waited for for 60 s, and one that is gone for 300.
"""
BOUNDS = (
    "journal._CLOSING_SECONDS",
    "journal._CANCELLED_SECONDS",
    "runner.GRACE_SECONDS",
    "_run.tasks._SETTLING_SECONDS",
    "_store.heartbeat._PARTING_SECONDS",
)
"""For what is waited while the database may still answer: no test here has one that does."""


@pytest.fixture(autouse=True)
def _short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BOUNDS:
        monkeypatch.setattr(f"agentjobs_async.batch.{name}", 0.1)


@pytest.fixture
def _no_close_is_quick(_short_bounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a close wait for an hour, unless it is cancelled."""
    monkeypatch.setattr("agentjobs_async.batch.journal._CLOSING_SECONDS", 3600.0)
    monkeypatch.setattr("agentjobs_async.batch.runner.GRACE_SECONDS", 3600.0)


class HeldSession(FakeSession):
    """A session whose jobs have no end, and whose creates are answered once that is wanted."""

    def __init__(self) -> None:
        super().__init__(duration=FOREVER)
        self.release = asyncio.Event()

    async def _create(self, prompt: str, project_id: str | None) -> AgentJob:
        job = await super()._create(prompt, project_id)
        await self.release.wait()
        return job


async def silent(wire: Wire) -> None:
    wire.silence()


OUTAGES: list[Callable[[Wire], Awaitable[None]]] = [silent, Wire.tear]


def asking(journal: Journal) -> list[asyncio.Future[object]]:
    """Ask for a lot at once: changes, claims and reads."""
    store, records = journal.store, records_of(journal)
    asked: list[Awaitable[object]] = [
        *(records.created(f"k{number}", "a claim", JobRef("docs", f"job_{number}"), None) for number in range(20)),
        *(store.claim(f"k{number}", BY_HAND) for number in range(20, 25)),
        *(journal.counts() for _ in range(20)),
    ]
    return [asyncio.ensure_future(one) for one in asked]


async def failed(asked: list[asyncio.Future[object]]) -> bool:
    """Return whether every call raised a JournalError."""
    return all(isinstance(found, JournalError) for found in await asyncio.gather(*asked, return_exceptions=True))


@pytest.mark.parametrize("outage", OUTAGES)
async def test_closing(laid_out: str, outage: Callable[[Wire], Awaitable[None]]) -> None:
    """Closing a journal whose database is gone ends in time; by then all calls have failed, and no task is left."""
    async with wired(laid_out) as wire:
        async with Journal.open(wire.url) as journal:
            await journal.add(items(30))
            await outage(wire)
            asked = asking(journal)
            await asyncio.sleep(0)
            assert not any(call.done() for call in asked)
            async with asyncio.timeout(CLOSING):
                await journal.aclose()
            assert all(call.done() for call in asked)
            assert [task for task in asyncio.all_tasks() if "batch/_store" in repr(task)] == []
        assert await failed(asked)


@pytest.mark.usefixtures("_no_close_is_quick")
async def test_a_cancellation(laid_out: str) -> None:
    """A cancellation leaves the block of a journal whose database is gone soon, and the closing itself at once."""
    async with wired(laid_out) as wire:
        for closing in (False, True):
            entered = asyncio.Event()

            async def stay(entered: asyncio.Event) -> None:
                async with Journal.open(wire.url) as journal:
                    asked = asking(journal)
                    entered.set()
                    await asyncio.gather(*asked)

            staying = asyncio.create_task(stay(entered))
            await entered.wait()
            wire.silence()
            staying.cancel()
            if closing:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                staying.cancel()
            async with asyncio.timeout(CLOSING):
                await asyncio.wait([staying])
            assert staying.cancelled()
            wire.speak()


@pytest.mark.usefixtures("_no_close_is_quick")
async def test_a_cancelled_opening(laid_out: str) -> None:
    """Cancelling the opening of a journal whose database does not answer leaves at once."""
    async with wired(laid_out) as wire:
        wire.silence()
        opening = asyncio.ensure_future(Journal.open(wire.url).__aenter__())
        await until(lambda: wire.opened)
        opening.cancel()
        async with asyncio.timeout(CLOSING):
            await asyncio.wait([opening])
        assert opening.cancelled()


@pytest.mark.parametrize("outage", OUTAGES)
async def test_a_batch(
    laid_out: str, outage: Callable[[Wire], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    """A batch whose database is gone is left in time; the ids that it could not take are logged and raised."""
    session = HeldSession()
    async with wired(laid_out) as wire:
        with pytest.raises(JournalError) as caught:
            async with Journal.open(wire.url) as journal, asyncio.timeout(3 * CLOSING):
                async with run_batch(session.session, items(5), journal=journal, max_sending=5):
                    await session.creates(5)
                    await outage(wire)
                    session.release.set()
        assert len(caught.value.unrecorded) == 5
    assert "job_4" in caplog.text


@pytest.mark.usefixtures("_no_close_is_quick")
async def test_a_cancelled_batch(laid_out: str) -> None:
    """Cancelling a batch whose database does not answer leaves soon."""
    session = FakeSession(duration=FOREVER)
    async with wired(laid_out) as wire:

        async def work() -> None:
            async with Journal.open(wire.url) as journal:
                async with run_batch(session.session, items(5), journal=journal) as results:
                    async for _ in results:
                        pass

        working = asyncio.create_task(work())
        await session.creates(5)
        wire.silence()
        working.cancel()
        async with asyncio.timeout(CLOSING):
            await asyncio.wait([working])
        assert working.done()


async def test_every_error_of_a_set_is_retrieved(laid_out: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of a set whose items all fail, one error comes out, and asyncio has none to complain of."""
    gc.collect()  # of earlier tests
    caplog.clear()
    session = FakeSession()
    async with wired(laid_out) as wire, Journal.open(wire.url) as journal:
        await journal.add(items(10))
        async with BatchWorker(session.session, journal, max_sending=10) as worker:
            await wire.tear()
            assert journal._opened.database is not None
            journal._opened.database.connector.patience = 0.0
            with pytest.raises(JournalError):
                await worker.run([item.key for item in items(10)])
    async with Journal.open(laid_out) as journal:
        assert (await journal.counts())[State.PLANNED] == 10
    gc.collect()
    assert "never retrieved" not in caplog.text
