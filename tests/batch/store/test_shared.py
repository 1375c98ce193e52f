import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import psycopg
import pytest
from sqlalchemy import make_url

from agentjobs_async import AgentJob, InvalidInputError, JobRef
from agentjobs_async.batch import Journal, Limits, Rate, State, run_batch
from agentjobs_async.batch._store.claims import NoRoom
from agentjobs_async.batch._store.pauses import pause
from agentjobs_async.batch._store.store import Store
from tests.batch.stage import FakeSession, claim_of, connected, items, outcomes, rate_limited, run, unknown
from tests.batch.store.owned import ME, WHY, claimed, created, records_of
from tests.postgresql import execute


def plain(database: str) -> str:
    """Return the address as psycopg takes it."""
    return make_url(database).set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def owners(database: str, count: int, **limits: Any) -> AsyncIterator[list[Journal]]:
    """Open a journal of forty items so many times, with limits."""
    journals = [Journal.open(database) for _ in range(count)]
    for journal in journals:
        await journal.__aenter__()
    await journals[0].add(items(40))
    await journals[0].set_limits(Limits(**({"max_active": None} | limits)))
    try:
        yield journals
    finally:
        for journal in journals:
            await journal.aclose()


async def claim_all(journals: list[Journal]) -> list[str]:
    """Claim every item through every owner at once, and give the keys that were claimed."""
    keys = [f"k{number}" for number in range(40)]
    claims = await asyncio.gather(*(journal.store.claim(key, ME) for key in keys for journal in journals))
    pairs = zip((key for key in keys for _ in journals), claims, strict=True)
    return [key for key, claim in pairs if isinstance(claim, str)]


async def test_most_active(laid_out: str) -> None:
    """No more items are active than all owners together may have; the end of one makes room for one."""
    async with owners(laid_out, 3, max_active=7) as journals:
        first = await claim_all(journals)
        assert len(first) == len(set(first)) == 7
        assert await journals[1].store.claim("k39", ME) == NoRoom(0.5, "max_active")
        records = records_of(journals[2])
        await records.created(first[0], await claim_of(journals[2].store, first[0]), JobRef("docs", "job_1"), None)
        assert isinstance(await journals[1].store.claim("k39", ME), NoRoom)
        await records.ended(first[0], AgentJob("job_1", "docs", "completed"), 1)
        assert len(await claim_all(journals)) == 1


async def test_rate(laid_out: str) -> None:
    """No more creates go in a window than all owners together may send, and who is held back is told for how long."""
    async with owners(laid_out, 3, create_rate=Rate(5, per=1000)) as journals:
        first = await claim_all(journals)
        assert len(first) == 5
        for number, key in enumerate(first):
            claim = await claim_of(journals[0].store, key)
            await records_of(journals[0]).created(key, claim, JobRef("docs", f"job_{number}"), None)
        held = await journals[1].store.claim("k39", ME)
        assert isinstance(held, NoRoom)
        assert 900 < held.wait <= 1000
        execute(laid_out, "UPDATE agentjobs_items SET counted_at = counted_at - 1001 WHERE job_id = 'job_0'")
        assert len(await claim_all(journals)) == 1


async def claim_in(address: str, store: Store, key: str, project_id: str) -> str | NoRoom | None:
    """Claim a row that is planned in this project."""
    execute(address, f"UPDATE agentjobs_items SET project_id = '{project_id}' WHERE key = '{key}'")  # noqa: S608 - our own names
    return await store.claim(key, ME)


async def test_creates_under_way_count(laid_out: str) -> None:
    """A create under way is within the window, however long ago it was claimed."""
    async with owners(laid_out, 1, create_rate=Rate(1, per=10)) as journals:
        assert len(await claim_all(journals)) == 1
        execute(laid_out, "UPDATE agentjobs_items SET counted_at = 0 WHERE state = 'sending'")
        assert await journals[0].store.claim("k39", ME) == NoRoom(0.5, "create_rate", "docs")


async def test_what_was_refused_counts(laid_out: str) -> None:
    """A create that was sent and refused counts for all owners, one that was never sent does not."""
    async with owners(laid_out, 2, create_rate=Rate(1, per=1000)) as (one, two):
        unsent = await claimed(one, "k0")
        await records_of(one).released("k0", unsent, None)
        refused = await claimed(one, "k0")
        await records_of(one).released("k0", refused, rate_limited(1), was_sent=True)
        for key in ("k0", "k1"):
            held = await two.store.claim(key, ME)
            assert isinstance(held, NoRoom)
            assert held.project_id == "docs"
            assert 900 < held.wait <= 1000


async def test_a_rate_of_each_project(laid_out: str) -> None:
    """A rate counts each project for itself, unless it is one of all; what was sent again counts twice."""
    async with owners(laid_out, 1, create_rate=Rate(1, per=1000)) as (journal,):
        store = journal.store
        claim = await claimed(journal, "k0")
        assert await store.claim("k1", ME) == NoRoom(0.5, "create_rate", "docs")
        other = await claim_in(laid_out, store, "k1", "web")
        assert isinstance(other, str)
        await records_of(journal).created("k1", other, JobRef("web", "job_1"), None)
        await records_of(journal).unknown("k0", claim, WHY)
        await journal.resolve("k0", send_again=True)
        await journal.set_limits(Limits(create_rate=Rate(2, per=1000)))
        await created(journal, "k0", JobRef("docs", "job_0"))
        held = await store.claim("k2", ME)
        assert isinstance(held, NoRoom)
        assert held.project_id == "docs"
        assert 900 < held.wait <= 1000
        assert isinstance(await claim_in(laid_out, store, "k2", "web"), str)
        await journal.set_limits(Limits(create_rate=Rate(4, per=1000, scope="all")))
        of_all = await claim_in(laid_out, store, "k3", "new")
        assert isinstance(of_all, NoRoom)
        assert of_all.project_id is None
        assert (await journal.limits()).create_rate == Rate(4, per=1000, scope="all")


async def test_pauses(laid_out: str) -> None:
    """A pause that one worker records holds the creates of its project back for all workers, and no others."""
    async with owners(laid_out, 2) as (one, two):
        await pause(one.store, 100, "docs")
        held = await two.store.claim("k0", ME)
        assert isinstance(held, NoRoom)
        assert held.project_id == "docs"
        assert 50 < held.wait <= 100
        assert isinstance(await claim_in(laid_out, two.store, "k0", "web"), str)
        execute(laid_out, "UPDATE agentjobs_pauses SET until = until - 100")
        assert isinstance(await two.store.claim("k1", ME), str)


async def test_a_wrong_clock(laid_out: str) -> None:
    """What was recorded by a clock that was ahead holds nothing back."""
    async with owners(laid_out, 1, create_rate=Rate(1, per=1000), max_active=2) as (journal,):
        await pause(journal.store, 100, "docs")
        claim = await claim_in(laid_out, journal.store, "k0", "web")
        assert isinstance(claim, str)
        await records_of(journal).unknown("k0", claim, WHY)
        execute(laid_out, "UPDATE agentjobs_pauses SET set_at = set_at + 90000, until = until + 90000")
        execute(laid_out, "UPDATE agentjobs_items SET counted_at = counted_at + 90000, updated_at = updated_at + 90000")
        for key, project in (("k1", "docs"), ("k2", "web")):
            assert isinstance(await claim_in(laid_out, journal.store, key, project), str)


async def test_repeatable_read(laid_out: str) -> None:
    """Limits hold where the database's own isolation level would let no claim see those that it waited for."""
    name = make_url(laid_out).database
    execute(laid_out, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    async with owners(laid_out, 4, max_active=5, create_rate=Rate(6, per=1000)) as journals:
        assert len(await claim_all(journals)) == 5
        async with connected(journals[0]) as connection:
            level = await connection.exec_driver_sql("SHOW transaction_isolation")
            assert level.scalar() == "read committed"


async def test_a_claim_of_another_level(laid_out: str) -> None:
    """A claim that could not see those before it is refused by the database itself."""
    with (
        psycopg.connect(plain(laid_out), options="-c default_transaction_isolation=serializable") as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="read committed"),
    ):
        connection.execute("SELECT agentjobs_claim('k0', 'c', 'o', NULL)")


async def test_a_claim_that_is_repeated(laid_out: str) -> None:
    """A claim whose answer was lost is given when it is repeated, though its row became unknown; no other one is."""
    async with owners(laid_out, 1, max_active=1) as (journal,):
        claim = "SELECT claimed FROM agentjobs_claim('k0', '{}', 'o', NULL)"
        assert execute(laid_out, claim.format("mine")) == [(1,)]
        execute(laid_out, "UPDATE agentjobs_items SET state = 'unknown', owner = NULL WHERE key = 'k0'")
        assert execute(laid_out, claim.format("another")) == [(0,)]
        assert execute(laid_out, claim.format("mine")) == [(1,)]
        assert (await journal.counts())[State.SENDING] == 1


COUNT = 20_000
NOW = 2_000_000_000.0


def grow(database: str) -> None:
    """Fill a journal with ended rows, 97 of them sent in the hour before `NOW`; statistics say that all are active."""
    with psycopg.connect(plain(database), autocommit=True) as connection:
        connection.execute("ALTER TABLE agentjobs_items SET (autovacuum_enabled = off)")
        connection.execute(
            "INSERT INTO agentjobs_items"
            " (key, prompt, state, job_id, project_id, counted_at, planned_at, updated_at, changed_at)"
            " SELECT 'old' || n, 'p', 'active', 'job' || n, 'docs', %s - 37 * n, 0, 0, 0"
            " FROM generate_series(1, %s) AS n",
            [NOW, COUNT],
        )
        connection.execute("ANALYZE agentjobs_items")
        connection.execute("UPDATE agentjobs_items SET state = 'completed', ended_at = 0")
        connection.execute(
            "INSERT INTO agentjobs_items (key, prompt, project_id, state, planned_at, updated_at, changed_at)"
            " SELECT 'k' || n, 'p', 'docs', 'planned', 0, 0, 0 FROM generate_series(0, 39) AS n"
        )


@pytest.mark.parametrize(("scope", "unknown_for"), [("project", None), ("all", 600.0)])
async def test_a_claim_reads_what_it_counts(
    laid_out: str, scope: Literal["project", "all"], unknown_for: float | None
) -> None:
    """However many rows there are, a claim reads no more of them than its limits say, and never all."""
    async with Journal.open(laid_out) as journal:
        await journal.set_limits(
            Limits(max_active=5, create_rate=Rate(100, per=3600, scope=scope), unknown_for=unknown_for)
        )
    grow(laid_out)
    with psycopg.connect(plain(laid_out)) as connection:
        for number in range(10):  # the database makes its plans for good after the fifth
            claim = "SELECT claimed FROM agentjobs_claim(%s, %s, 'o', %s)"
            assert connection.execute(claim, [f"k{number}", f"c{number}", NOW]).fetchone() == (int(number < 3),)
        read = "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'agentjobs_items'"
        sequential, fetched = connection.execute(read).fetchone() or (None, None)
        assert sequential == 0
        assert isinstance(fetched, int)
        assert fetched <= 10 * 2 * (100 + 5)  # each looks twice: without the lock, and with it


async def test_the_unknown_count(laid_out: str) -> None:
    """What is unknown counts as active, as long as the limits say."""
    async with owners(laid_out, 1, max_active=1, unknown_for=60.0) as journals:
        (key,) = await claim_all(journals)
        await records_of(journals[0]).unknown(key, await claim_of(journals[0].store, key), WHY)
        assert await claim_all(journals) == []
        execute(laid_out, "UPDATE agentjobs_items SET updated_at = updated_at - 61 WHERE state = 'unknown'")
        assert len(await claim_all(journals)) == 1
        await journals[0].set_limits(Limits(max_active=2, unknown_for=None))
        assert await claim_all(journals) == []


async def test_the_unknown_of_another_project(laid_out: str) -> None:
    """Unknown rows of one project count whole for it, and as half of the limit at most for all others together."""
    async with owners(laid_out, 1, max_active=5) as (journal,):
        store = journal.store
        claims = [await claim_in(laid_out, store, f"k{number}", "bad") for number in range(5)]
        for number, claim in enumerate(claims):
            assert isinstance(claim, str)
            await records_of(journal).unknown(f"k{number}", claim, WHY)
        assert await claim_in(laid_out, store, "k5", "bad") == NoRoom(0.5, "max_active", "bad")
        assert [isinstance(await claim_in(laid_out, store, f"k{number}", "good"), str) for number in (6, 7, 8)] == [
            True
        ] * 3
        assert await claim_in(laid_out, store, "k9", "good") == NoRoom(0.5, "max_active")
        assert await claim_in(laid_out, store, "k9", "new") == NoRoom(0.5, "max_active")
        await journal.set_limits(Limits(max_active=5, unknown_for=0.0))
        assert isinstance(await claim_in(laid_out, store, "k5", "bad"), str)


async def test_a_limit_of_one(laid_out: str) -> None:
    """With a limit of one, an unknown row holds back its own project only."""
    async with owners(laid_out, 1, max_active=1, unknown_for=None) as (journal,):
        store = journal.store
        claim = await claim_in(laid_out, store, "k0", "bad")
        assert isinstance(claim, str)
        await records_of(journal).unknown("k0", claim, WHY)
        assert await claim_in(laid_out, store, "k1", "bad") == NoRoom(0.5, "max_active", "bad")
        assert isinstance(await claim_in(laid_out, store, "k2", "good"), str)


async def test_a_batch_within_the_limits(laid_out: str) -> None:
    """A run that is held back by the limits goes on as soon as there is room."""
    async with owners(laid_out, 1, max_active=2) as journals:
        session = FakeSession(duration=0.05)
        session.answers = {"p3": [unknown()]}
        await journals[0].set_limits(Limits(max_active=2, unknown_for=0.1))
        results = await run(session, (), journals[0], max_active=5, limit=6)
        assert sorted(outcomes(results).values()) == [*["completed"] * 5, "unknown"]
        assert session.most_under_way <= 2
        assert (await journals[0].counts())[State.PLANNED] == 34


LIMITS = Limits(max_active=7, create_rate=Rate(90, per=60, scope="all"), unknown_for=None, timeout=None, max_sending=3)


async def test_kept_limits(location: str) -> None:
    """A journal keeps its limits, whoever opens it, until others are set; before, they are the defaults."""
    async with Journal.open(location) as journal:
        assert await journal.limits() == Limits()
        await journal.set_limits(LIMITS)
    async with Journal.open(location, read_only=True) as journal:
        assert await journal.limits() == LIMITS
    async with Journal.open(location) as journal:
        await journal.set_limits(Limits(timeout=60))
        assert await journal.limits() == Limits(timeout=60)


async def test_a_run_within_kept_limits(location: str) -> None:
    """A run takes the limits that its journal keeps, except for those that it is given."""
    async with Journal.open(location) as journal:
        await journal.set_limits(Limits(max_active=2, create_rate=Rate(3, per=1000)))
        async with run_batch(FakeSession().session, items(9), journal=journal, limit=3) as results:
            assert len([result async for result in results]) == 3
            assert 900 < (results.stats().next_create or 0) <= 1000
        await journal.set_limits(Limits(max_active=2))
    session = FakeSession()
    session.answers = {item.prompt: [0.1] for item in items(9)}
    async with (
        Journal.open(location) as journal,
        run_batch(session.session, items(9), journal=journal, create_rate=None) as results,
    ):
        assert len([result async for result in results]) == 6
    assert session.most_under_way == 2


async def test_a_file_has_no_server(file_journal: Journal) -> None:
    """A file has no arguments to connect to."""
    with pytest.raises(InvalidInputError, match="the journal is a file"):
        file_journal._opened.connect_arguments()


def test_wrong_limits() -> None:
    """Limits that make no sense are refused."""
    wrong: list[dict[str, Any]] = [{"max_active": 0}, {"create_rate": 100}, {"unknown_for": -1}]
    for limits in (*wrong, {"unknown_for": float("inf")}):
        with pytest.raises(InvalidInputError, match=next(iter(limits))):
            Limits(**limits)


ENDED_ROWS = """
INSERT INTO agentjobs_items (key, prompt, project_id, state, job_id, planned_at, ended_at, updated_at, changed_at)
SELECT 'old-' || n, 'p', 'docs', 'completed', 'job', 0, 0, 0, 0 FROM generate_series(1, 50000) AS n
"""
PLANNED_ROWS = """
INSERT INTO agentjobs_items (key, prompt, project_id, state, planned_at, updated_at, changed_at)
SELECT 'new-' || n, 'p', 'docs', 'planned', 0, 0, 0 FROM generate_series(1, 20000) AS n
"""


def blocks_of_a_claim(database: str, key: str) -> int:
    """Claim a row, and return how many blocks the server has read for that."""
    claiming = f"SELECT claimed FROM agentjobs_claim('{key}', 'claim', 'owner', NULL)"  # noqa: S608 - our own key
    plan = execute(database, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claiming}")[0][0][0]["Plan"]
    assert execute(database, f"SELECT state FROM agentjobs_items WHERE key = '{key}'") == [("sending",)]  # noqa: S608 - the same
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_a_claim_after_old_statistics(laid_out: str) -> None:
    """A claim reads its own row, and not all planned ones, also where the statistics know of no planned rows yet."""
    async with owners(laid_out, 1, max_active=7):
        execute(laid_out, "ALTER TABLE agentjobs_items SET (autovacuum_enabled = off)")
        execute(laid_out, ENDED_ROWS)
        execute(
            laid_out,
            "UPDATE agentjobs_items SET state = 'rejected', ended_at = 0 WHERE key <> 'k0' AND state = 'planned'",
        )
        execute(laid_out, "VACUUM ANALYZE agentjobs_items")
        before = blocks_of_a_claim(laid_out, "k0")
        execute(laid_out, PLANNED_ROWS)
        assert blocks_of_a_claim(laid_out, "new-19999") < before + 200
