"""Creates that are repeated with their idempotency keys, on a service that honours them, and on one that does not."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from agentjobs_async import AuthError, Dialect, JobRef
from agentjobs_async.batch import BatchWorker, Journal, Limits, Rate, State, _failures, run_batch
from agentjobs_async.batch._store.owning import take_to_repeat
from tests.batch.stage import items, outcomes, run, set_clock, state_of
from tests.batch.store.owned import WHY, cells_of, records_of
from tests.cli.stage import Child
from tests.keyed import Keyed, keyed
from tests.polled import REF
from tests.until import until


@pytest.fixture(autouse=True)
def _quick_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_failures, "_FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def service() -> AsyncIterator[Keyed]:
    async with keyed() as found:
        yield found


async def test_a_lost_answer(service: Keyed, journal: Journal) -> None:
    """A create whose answer is lost is sent again with its key, and its one agent becomes the item's job."""
    service.script["p0"] = ["lost", "lost"]
    async with service.session() as session:
        results = await run(session, items(2), journal)
    assert outcomes(results) == {"k0": "completed", "k1": "completed"}
    assert service.agents == {"p0": 1, "p1": 1}
    first, *again = service.keys_of("p0")
    assert first is not None
    assert again == [first, first]
    assert service.keys_of("p1") != [first]


async def test_without_the_setting(service: Keyed, journal: Journal) -> None:
    """Without the setting no create is sent again, by this run or the next, and none has a key."""
    service.script["p0"] = ["lost"]
    async with service.session(dialect=Dialect()) as session:
        assert outcomes(await run(session, items(1), journal)) == {"k0": "unknown"}
        assert await run(session, items(1), journal) == []
    async with service.session() as session:
        assert await run(session, items(1), journal) == []
    assert service.posts == [("p0", None, service.posts[0][2])]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
async def test_a_repetition_refused_for_good(service: Keyed, file_journal: Journal, status: int) -> None:
    """A repetition that is refused leaves the create unknown, says so, and is the last one of all runs."""
    service.script["p0"] = ["lost", status]
    results = []
    async with service.session() as session:
        with suppress(AuthError):  # by which a run ends whose key is refused
            async with run_batch(session, items(1), journal=file_journal) as running:
                async for found in running:
                    results.append(found)
        assert await run(session, items(1), file_journal) == []
    (result,) = results
    assert (result.outcome, service.agents["p0"], len(service.posts)) == ("unknown", 1, 2)
    assert f"and a repetition with the same key ended: HTTP {status}" in str(result.error)
    cells = await cells_of(file_journal, "k0")
    assert (cells.state, cells.owner) == ("unknown", None)
    assert f"and a repetition with the same key ended: HTTP {status}" in str(cells.error)


@pytest.mark.parametrize("step", [409, 425, 429, (429, 0.01), "cut"])
async def test_a_repetition_refused_for_now(service: Keyed, journal: Journal, step: object) -> None:
    """A repetition that meets the first create at work, a 429 or a broken connection is repeated in its turn."""
    service.script["p0"] = ["lost", step, step, "ok"] if step != 429 else ["lost", step]
    async with service.session() as session:
        results = await run(session, items(1), journal)
    assert outcomes(results) == {"k0": "completed"}
    assert (service.agents["p0"], len(set(service.keys_of("p0")))) == (1, 1)


async def test_a_key_that_is_forgotten(service: Keyed, journal: Journal) -> None:
    """Once the service may have forgotten the key, the create is repeated no more, by this run or the next."""
    service.script["p0"] = ["lost", *[409] * 1000]
    async with service.session(seconds=0.3) as session:
        (result,) = await run(session, items(1), journal)
        posts = len(service.posts)
        set_clock(journal, time.time() + 1)
        assert await run(session, items(1), journal) == []
    assert (result.outcome, service.agents["p0"]) == ("unknown", 1)
    assert len(service.posts) == posts > 1


async def test_another_api_key(service: Keyed, file_journal: Journal) -> None:
    """An unknown create is not repeated under another API key: the service may know its key under the first alone."""
    service.keys.add("sk-another-key")
    service.script["p0"] = ["lost"]
    service.script["p1"] = [422]
    async with service.session() as session:
        async with run_batch(session, items(1), journal=file_journal) as results:
            await service.posted(1)
            await results.aclose()
    assert await state_of(file_journal, "k0") == "unknown"
    async with service.session(api_key="sk-another-key") as session:
        assert outcomes(await run(session, items(2), file_journal)) == {"k1": "rejected"}
    async with service.session() as session:
        assert outcomes(await run(session, items(2), file_journal)) == {"k0": "completed"}
    assert service.agents == {"p0": 1}
    assert service.keys_of("p0")[0] == service.keys_of("p0")[1]


async def test_the_next_run(service: Keyed, journal: Journal) -> None:
    """A run that is left while a create is in doubt gives no result of it: the next one repeats it, and does."""
    service.script["p0"] = ["lost", *[409] * 1000]
    async with service.session() as session:
        async with run_batch(session, items(1), journal=journal) as results:
            await service.posted(3)
        assert [result async for result in results] == []
        cells = await cells_of(journal, "k0")
        assert (cells.state, cells.owner, cells.idempotency_key) == ("unknown", None, service.keys_of("p0")[0])
        service.script.clear()
        assert outcomes(await run(session, [], journal)) == {"k0": "completed"}
    assert (service.agents["p0"], len(set(service.keys_of("p0")))) == (1, 1)


@pytest.mark.parametrize("how", ["job", "abandon", "send again"])
async def test_settled_while_it_waits(service: Keyed, file_journal: Journal, how: str) -> None:
    """What a person decides about a create that waits to be repeated holds; a new create has a new key."""
    service.script["p0"] = ["lost", (409, 0.2), "ok"]
    async with service.session() as session:
        async with run_batch(session, items(1), journal=file_journal) as running:
            await service.posted(2)
            while await state_of(file_journal, "k0") != "unknown":  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
            if how == "job":
                await file_journal.resolve("k0", job_id="p0-1")
            elif how == "abandon":
                await file_journal.abandon("k0")
            else:
                await file_journal.resolve("k0", send_again=True)
            results = [result async for result in running]
    assert outcomes(results) == {"k0": "abandoned" if how == "abandon" else "completed"}
    assert service.agents["p0"] == (2 if how == "send again" else 1)
    assert len(service.posts) == (3 if how == "send again" else 2)
    assert len(set(service.keys_of("p0"))) == (2 if how == "send again" else 1)


async def test_two_jobs_of_one_key(service: Keyed, journal: Journal) -> None:
    """Where a service forgets the key, each agent is on record: the first answer is the item's, the other one late."""
    service.honours = False
    service.script["p0"] = ["lost", "ok"]
    async with service.session() as session:
        assert outcomes(await run(session, items(1), journal)) == {"k0": "completed"}
    (row,) = await journal.rows()
    assert (row.job_id, service.agents["p0"]) == ("p0-2", 2)


async def test_the_slot_of_its_own(service: Keyed, journal: Journal) -> None:
    """With room for one item, a create in doubt is repeated by its run and by the next: it has its own slot."""
    await journal.set_limits(Limits(max_active=1, unknown_for=None))
    service.script["p0"] = ["lost", *[409] * 1000]
    async with service.session() as session:
        async with run_batch(session, items(1), journal=journal):
            await service.posted(3)
        service.script.clear()
        assert outcomes(await run(session, items(2), journal)) == {"k0": "completed", "k1": "completed"}
    assert service.agents == {"p0": 1, "p1": 1}


async def test_the_rate_counts_repetitions(service: Keyed, journal: Journal) -> None:
    """Each repetition takes its place in the rate, and that of the create before it stays taken."""
    service.script["p0"] = ["lost", "lost", "ok"]
    async with service.session() as session:
        async with run_batch(session, items(1), journal=journal, create_rate=Rate(2, per=3600)) as running:
            await service.posted(2)
            while (left := running.stats().next_create) is None or left < 3000:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
    assert len(service.posts) == 2


async def test_401_and_a_new_key(service: Keyed, journal: Journal) -> None:
    """After a 401 for which the callable gives another key, the item is sent with that: nothing is refused."""
    keys = ["sk-that-has-expired", *["sk-that-is-valid"] * 5]
    service.keys = {"sk-that-is-valid"}
    async with service.session(api_key=lambda: keys.pop(0)) as session:
        results = await run(session, items(3), journal, max_sending=1)
    assert outcomes(results) == {"k0": "completed", "k1": "completed", "k2": "completed"}
    assert [api_key for _, _, api_key in service.posts] == ["sk-that-has-expired", *["sk-that-is-valid"] * 3]
    assert service.agents == {"p0": 1, "p1": 1, "p2": 1}


async def test_an_answer_to_an_earlier_post(service: Keyed, journal: Journal) -> None:
    """A job that answers any POST of a create settles it, whichever claim is the last; another job is kept as late."""
    async with service.session() as session:
        digest = await session._digest_of_create("p0", project_id="docs")
    await journal.add(items(1))
    claim = await journal.store.claim("k0", "one", digest)
    assert isinstance(claim, str)
    await records_of(journal, "one").unknown("k0", claim, WHY)
    found = await take_to_repeat(journal.store, "k0", "two", digest, 3600)
    assert found is not None
    again = await journal.store.claim("k0", "two", digest, found[0])
    assert isinstance(again, str)
    row = await records_of(journal, "one").created("k0", claim, REF, None, claim)
    assert row is not None
    assert (row.state, row.job_id) == ("active", REF.job_id)
    same = await records_of(journal, "two").created("k0", again, REF, None, claim)
    assert same is not None
    assert same.job_id == REF.job_id
    for _ in range(2):  # once more, as after an answer that was lost
        assert await records_of(journal, "two").created("k0", again, JobRef("docs", "late"), None, claim) is None
    assert [row.job_id for row in await journal.rows(all_tries=True)] == ["late", REF.job_id]


@pytest.mark.parametrize("how", ["send again", "retry"])
async def test_an_answer_to_a_post_of_an_earlier_try(journal: Journal, how: str) -> None:
    """The answer to any POST of an earlier try is kept with that try, and leaves the new one alone."""
    await journal.add(items(1))
    claim = await journal.store.claim("k0", "one", "digest")
    assert isinstance(claim, str)
    await records_of(journal, "one").unknown("k0", claim, WHY)
    found = await take_to_repeat(journal.store, "k0", "two", "digest", 3600)
    assert found is not None
    again = await journal.store.claim("k0", "two", "digest", found[0])
    assert isinstance(again, str)
    await records_of(journal, "two").unknown("k0", again, WHY)
    if how == "retry":
        await journal.abandon("k0")
        await journal.retry("k0")
    else:
        await journal.resolve("k0", send_again=True)
    next_claim = await journal.store.claim("k0", "three", "digest")
    cells = await cells_of(journal, "k0")
    assert cells.idempotency_key == next_claim != claim
    assert await records_of(journal, "one").created("k0", claim, REF, None, claim) is None
    assert await records_of(journal, "two").created("k0", again, JobRef("docs", "other"), None, claim) is None
    tried = [(row.tries, str(row.state), row.job_id) for row in await journal.rows(all_tries=True)]
    assert tried == [(1, "active", REF.job_id), (1, "active", "other"), (2, "sending", None)]


async def test_a_withheld_repetition(service: Keyed, file_journal: Journal) -> None:
    """A repetition whose API key was replaced since it was claimed is not sent."""
    service.script["p0"] = ["lost"]
    async with service.session() as session:
        real = file_journal.store.claim

        async def claim(*arguments: Any) -> Any:
            if len(arguments) > 3 and arguments[3] is not None:
                session._credentials.changes += 1
            return await real(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_journal.store, "claim", claim)
            async with run_batch(session, items(1), journal=file_journal) as running:
                await until(lambda: session._credentials.changes > 2)
                await running.aclose()
    assert (len(service.posts), await state_of(file_journal, "k0")) == (1, "unknown")


async def test_two_runs_repeat_once(service: Keyed, laid_out: str) -> None:
    """Of two runs on one journal one repeats a create in doubt, and one gives its result."""
    service.script["p0"] = ["lost", *[409] * 1000]
    async with service.session() as session, Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        async with run_batch(session, items(1), journal=one):
            await service.posted(2)
        service.script["p0"] = ["late"]
        first = asyncio.ensure_future(run(session, [], one))
        await service.posted(len(service.posts) + 1)
        posts = len(service.posts)
        second = asyncio.ensure_future(run(session, [], two))
        await until(lambda: two._opened.owners.own)
        service.let_go.set()
        results = await first + await second
    assert outcomes(results) == {"k0": "completed"}
    assert (len(results), len(service.posts), service.agents["p0"]) == (1, posts, 1)


async def test_a_worker(service: Keyed, journal: Journal) -> None:
    """A worker repeats creates in doubt, also those that another one has left."""
    service.script |= {"p0": ["lost", "ok"], "p1": ["lost", *[409] * 1000]}
    await journal.add(items(2))
    async with service.session() as session:
        async with BatchWorker(session, journal) as worker:
            running = asyncio.ensure_future(worker.run(["k0", "k1"]))
            await until(lambda: len(service.keys_of("p1")) > 2)
            running.cancel()
            await asyncio.wait([running])
        service.script.clear()
        async with BatchWorker(session, journal) as worker:
            assert await worker.run(["k0", "k1"]) == ()
    assert service.agents == {"p0": 1, "p1": 1}
    assert {row.state for row in await journal.rows()} <= {State.COMPLETED}


CHILD = """
import asyncio, sys
from agentjobs_async import AgentJobsSession, Dialect
from agentjobs_async.batch import Journal, run_batch
from tests.batch.stage import items
from tests.keyed import HEADER, KEY

async def main():
    dialect = Dialect(idempotency_header=HEADER)
    async with AgentJobsSession(sys.argv[1], KEY, project_id="docs", dialect=dialect) as session:
        async with Journal.open(sys.argv[2], owner_timeout=2.0) as journal:
            async with run_batch(session, items(6), journal=journal, max_sending=3) as results:
                async for _ in results:
                    pass

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_kill_amid_creates(service: Keyed, location: str) -> None:
    """After a kill amid creates the next run repeats them: each item has one agent, and none is left unknown."""
    service.script = {f"p{number}": ["late"] for number in range(6)}
    with Child(service.base_url, location, command=("-c", CHILD)) as child:
        await service.posted(3)
        child.process.kill()
        await asyncio.to_thread(child.ended)
    service.let_go.set()
    service.script.clear()
    async with service.session() as session, Journal.open(location, owner_timeout=2.0) as journal:
        results = await run(session, items(6), journal)
    assert outcomes(results) == {f"k{number}": "completed" for number in range(6)}
    assert service.agents == {f"p{number}": 1 for number in range(6)}
    assert all(len(set(service.keys_of(f"p{number}"))) == 1 for number in range(6))
    assert len(service.posts) == 9
