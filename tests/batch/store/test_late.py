"""Creates that were answered after their items had moved on."""

import asyncio

import pytest

from agentjobs_async import JobRef, JournalError, NotFoundError
from agentjobs_async.batch import Journal, JournalRow, State
from agentjobs_async.batch._store.late import end_late, take_late
from agentjobs_async.batch._store.owning import free_own
from tests.batch.stage import items
from tests.batch.store.owned import ME, WHY, claimed, created, lost, records_of, row_of, tries_of
from tests.batch.store.test_moves import twice

LATE = JobRef("docs", "late_job")


async def answer(journal: Journal, claim: str, ref: JobRef = LATE) -> JournalRow | None:
    """Record the job of a create of the row `k0`."""
    return await records_of(journal).created("k0", claim, ref, None)


async def told(journal: Journal) -> list[tuple[int, str, str | None]]:
    """Return try, state and job of each earlier try, and of the row itself."""
    return [(row.tries, str(row.state), row.job_id) for row in await journal.rows(all_tries=True)]


async def test_after_it_was_sent_again(journal: Journal) -> None:
    """A create that is answered after its item was sent again gives its job to its try, and leaves the item alone."""
    await journal.add(items(1))
    claim = await lost(journal, "k0")
    await journal.resolve("k0", send_again=True)
    assert await answer(journal, claim) is None
    await created(journal, "k0", JobRef("docs", "next_job"))
    assert await told(journal) == [(1, "active", "late_job"), (2, "active", "next_job")]
    (kept,) = await tries_of(journal, "k0")
    assert (kept.owner, kept.follow, kept.told_at, kept.error) == (None, "no", None, "its create was answered late")


async def test_after_another_try_was_lost_too(journal: Journal) -> None:
    """Each create gives its job to its own try."""
    await journal.add(items(1))
    claims = []
    for _ in range(3):
        claims.append(await lost(journal, "k0"))
        await journal.resolve("k0", send_again=True)
    assert await answer(journal, claims[1]) is None
    assert await told(journal) == [
        (1, "unknown", None),
        (2, "active", "late_job"),
        (3, "unknown", None),
        (4, "planned", None),
    ]


async def test_after_a_person_has_named_another_job(journal: Journal) -> None:
    """A create that is answered after a person has named another job gets a try of its own; the row keeps that job."""
    await journal.add(items(1))
    claim = await lost(journal, "k0")
    await journal.resolve("k0", job_id="by_hand")
    before = await row_of(journal)
    assert await answer(journal, claim) is None
    assert await row_of(journal) == before
    assert await told(journal) == [(1, "active", "late_job"), (1, "active", "by_hand")]


async def test_after_a_person_has_named_its_job(journal: Journal) -> None:
    """A create that is answered after a person has named its job changes nothing."""
    await journal.add(items(1))
    claim = await lost(journal, "k0")
    await journal.resolve("k0", job_id=LATE.job_id)
    row = await answer(journal, claim)
    assert row is not None
    assert await told(journal) == [(1, "active", "late_job")]


async def test_after_that_job_has_ended(journal: Journal) -> None:
    """A try that has ended by a job which a person named stays so, whichever job its create is answered with."""
    await journal.add(items(1))
    claim = await lost(journal, "k0")
    await journal.resolve("k0", job_id=LATE.job_id)
    await records_of(journal).gone("k0", LATE.job_id, _gone(), 1)
    await journal.retry("k0")
    kept = await tries_of(journal, "k0")
    assert await answer(journal, claim) is None
    assert await tries_of(journal, "k0") == kept
    assert await answer(journal, claim, JobRef("docs", "another")) is None
    assert await told(journal) == [(1, "failed", "late_job"), (1, "active", "another"), (2, "planned", None)]


def _gone() -> NotFoundError:
    return NotFoundError(410, "gone")


async def test_after_it_was_abandoned(journal: Journal) -> None:
    """A row that was abandoned meanwhile gets its job, and stays abandoned. After a retry, its try becomes active."""
    await journal.add(items(1))
    claim = await lost(journal, "k0")
    await journal.abandon("k0")
    row = await answer(journal, claim)
    assert row is not None
    assert (row.state, row.job_id) == (State.ABANDONED, "late_job")
    await journal.retry("k0")
    claim = await lost(journal, "k0")
    await journal.abandon("k0")
    await journal.retry("k0")
    assert await answer(journal, claim) is None
    assert await told(journal) == [(1, "abandoned", "late_job"), (2, "active", "late_job"), (3, "planned", None)]


async def test_without_such_a_claim(journal: Journal) -> None:
    """A create of which the journal knows nothing is an error, and changes nothing: its caller has to name the job."""
    await journal.add(items(1))
    await lost(journal, "k0")
    with pytest.raises(JournalError, match="another owner has changed 'k0'") as caught:
        await answer(journal, "of nobody")
    assert caught.value.reason == "locked"
    assert await told(journal) == [(1, "unknown", None)]


async def test_executed_twice(journal: Journal) -> None:
    """An answer that is recorded again, since that of the journal was lost, is recorded once."""
    await journal.add(items(1))
    claim = await lost(journal, "k0")
    with twice(journal):
        await journal.resolve("k0", job_id="by_hand")
        assert await answer(journal, claim) is None
        assert await answer(journal, claim) is None
    assert await told(journal) == [(1, "active", "late_job"), (1, "active", "by_hand")]


async def test_executed_again_after_its_end(journal: Journal) -> None:
    """An answer that is recorded once more after its job has ended does not begin it anew."""
    await journal.add(items(1))
    claim = await lost(journal, "k0")
    await journal.resolve("k0", send_again=True)
    await answer(journal, claim)
    ((row, ref),) = await take_late(journal.store, ME)
    await end_late(journal.store, row, ref, State.COMPLETED)
    assert await answer(journal, claim) is None
    assert await told(journal) == [(1, "completed", "late_job"), (2, "planned", None)]


async def test_at_once(laid_out: str) -> None:
    """Of several executions at once, one records the job, and all find it there."""
    journals = [Journal.open(laid_out) for _ in range(4)]
    async with journals[0] as first, journals[1], journals[2], journals[3]:
        for way in ("resolve", "retry"):
            key = f"k{way == 'retry':d}"
            await first.add(items(2))
            claim = await lost(first, key)
            await first.resolve(key, job_id="by_hand")
            if way == "retry":
                await records_of(first).gone(key, "by_hand", _gone(), 1)
                await first.retry(key)
            answers = (records_of(journal).created(key, claim, LATE, None) for journal in journals)
            assert await asyncio.gather(*answers) == 4 * [None]
            assert [one.job_id for one in await tries_of(first, key)].count("late_job") == 1


async def test_as_it_is_sent_again(laid_out: str) -> None:
    """An answer that comes as a person sends the item again is recorded, with the row or with the try, and once."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        await one.add(items(20))
        for number in range(20):
            key = f"k{number}"
            claim = await lost(one, key)
            ref = JobRef("docs", f"late_{number}")
            await asyncio.gather(
                records_of(one).created(key, claim, ref, None),
                two.resolve(key, send_again=True),
                return_exceptions=True,
            )
            assert [row.job_id for row in await one.rows(all_tries=True)].count(ref.job_id) == 1
            await free_own(one.store, ME)
            await _end(one, key, ref)


async def _end(journal: Journal, key: str, ref: JobRef) -> None:
    """End what is active, so that it takes no slot of the next one."""
    await records_of(journal).gone(key, ref.job_id, _gone(), 1)


async def test_polled_by_one(laid_out: str) -> None:
    """The job of an earlier try is taken by one owner, until that leaves it; its end is recorded with its try alone."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        await one.add(items(2))
        for key in ("k0", "k1"):  # a person may have named the same job for both
            claim = await lost(one, key)
            await one.resolve(key, send_again=True)
            await records_of(one).created(key, claim, LATE, None)
        taken = await asyncio.gather(take_late(one.store, ME), take_late(two.store, "another"))
        assert sorted(row.key for found in taken for row, _ in found) == ["k0", "k1"]
        assert await take_late(one.store, ME) == []
        for owner in (ME, "another"):
            await free_own(one.store, owner)
        (first, ref), _ = sorted(await take_late(two.store, "another"), key=lambda found: found[0].key)
        await end_late(two.store, first, ref, State.FAILED, error="it failed")
        assert [one.state for one in await tries_of(one, "k0")] == ["failed"]
        assert [one.state for one in await tries_of(one, "k1")] == ["active"]
        assert (await row_of(one)).state is State.PLANNED


async def test_what_a_living_owner_still_sends(journal: Journal) -> None:
    """The answer to the create that the row waits for is that of the row, and no earlier try of it."""
    await journal.add(items(1))
    await lost(journal, "k0")
    await journal.resolve("k0", send_again=True)
    claim = await claimed(journal, "k0")
    row = await answer(journal, claim)
    assert row is not None
    assert await told(journal) == [(1, "unknown", None), (2, "active", "late_job")]
    assert not await records_of(journal).unknown("k0", claim, WHY)
