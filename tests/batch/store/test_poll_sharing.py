"""How the owners of a journal share its limit of polls, on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Self

import pytest

from agentjobs_async.batch import BatchItem, BatchWorker, Journal, Limits, State
from agentjobs_async.batch._store import heartbeat as beating
from tests.batch.silence import LONG_AGO, NEVER, be_silent, heartbeat_of, record_silence, server_is_up, stop_beating
from tests.batch.stage import FakeSession
from tests.batch.store.owned import Process, joined
from tests.postgresql import execute
from tests.until import until

LIMIT = 12.0

Journals = tuple[Journal, Journal, Journal]


@pytest.fixture
async def journals(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Journals]:
    """A journal that three processes have open, whose owners give no sign of life within a test, but by `beat`."""
    monkeypatch.setattr(beating, "_LONGEST_GAP_SECONDS", NEVER)
    one, two, three = (Journal.open(laid_out, owner_timeout=NEVER) for _ in range(3))
    with server_is_up():
        async with one, two, three:
            await one.set_limits(Limits(polls_per_second=LIMIT))
            yield one, two, three


async def beat(*processes: Process) -> None:
    """Let each of these processes count all owners, and give a sign of life."""
    for process in processes:
        await heartbeat_of(process.journal).beat()


def share_of(process: Process) -> float | None:
    """Return how many polls per second the session of a run may start."""
    return process.session.polls_per_second


async def test_a_connection_that_was_cut(laid_out: str) -> None:
    """A worker that is entered after the connections of an open journal were cut polls as if they had not been."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    async with Journal.open(laid_out, owner_timeout=NEVER) as journal:
        for key in ("k0", "k1"):
            async with BatchWorker(FakeSession().session, journal) as worker:
                await journal.add([BatchItem(key, "Hello")], project_id="docs")
                assert await worker.run([key]) == ()
            execute(laid_out, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608 - the tests' own words
            assert (await journal.counts())[State.COMPLETED] > 0


async def test_who_joins_waits(journals: Journals) -> None:
    """An owner that joins polls nothing until each other one has counted it, with its next beat.

    A journal that is open, and has no owner, has no share of the polls.
    """
    one, two, three = journals
    async with joined(one) as first:
        assert share_of(first) == LIMIT
        async with joined(two) as second, joined(three) as third:
            assert (share_of(second), share_of(third)) == (0, 0)
            await beat(second, third)
            assert (share_of(second), share_of(third)) == (0, 0)
            await beat(first)
            assert share_of(first) == pytest.approx(LIMIT / 3)
            assert (share_of(second), share_of(third)) == (0, 0)
            await beat(second, third)
            assert share_of(second) == share_of(third) == pytest.approx(LIMIT / 3)


async def test_who_leaves(journals: Journals) -> None:
    """The share of an owner that leaves is there for the others at once, by their next beats."""
    async with joined(journals[0]) as first:
        async with joined(journals[1]) as second:
            await beat(first, second)
            assert share_of(first) == share_of(second) == pytest.approx(LIMIT / 2)
        assert share_of(second) is None
        await beat(first)
        assert share_of(first) == LIMIT


async def test_owners_of_one_process(journals: Journals) -> None:
    """Each owner of a process has a share of its own, and one that leaves gives it back to the others there at once."""
    one, two, _ = journals
    async with joined(one) as first, joined(two) as second:
        async with joined(two) as third:
            await beat(first, second)
            assert [share_of(each) for each in (first, second, third)] == pytest.approx(3 * [LIMIT / 3])
        assert share_of(first) == pytest.approx(LIMIT / 3)
        assert share_of(second) == pytest.approx(LIMIT / 2)
        assert share_of(third) is None


async def test_a_session_of_two_owners(journals: Journals) -> None:
    """A session that polls for two owners has the shares of both."""
    one, two, _ = journals
    async with joined(one) as first, joined(two) as second:
        another = await two._opened.join(second.session.session)
        await beat(first, second)
        assert share_of(second) == pytest.approx(LIMIT * 2 / 3)
        await two._opened.leave(another, has_left=True)
        await beat(first)
        assert share_of(first) == share_of(second) == pytest.approx(LIMIT / 2)


async def test_a_changed_limit(journals: Journals) -> None:
    """The beats after a change of the limit follow it; without a limit any number of polls may start."""
    one, *_ = journals
    await one.set_limits(Limits())
    async with joined(one) as first:
        assert share_of(first) == float("inf")
        for limit in (4.0, 2.0, 8.0):
            await one.set_limits(Limits(polls_per_second=limit))
            await beat(first)
            assert share_of(first) == limit
        await one.set_limits(Limits())
        await beat(first)
        assert share_of(first) == float("inf")


async def test_a_silent_owner(laid_out: str, journals: Journals) -> None:
    """The share of a silent owner is in use until it counts as dead; before that it stops polling by itself."""
    one, two, _ = journals
    async with joined(one) as first, joined(two) as second:
        await beat(first, second)
        heartbeat_of(two)._heard = LONG_AGO
        assert share_of(second) == 0
        await beat(first)
        assert share_of(first) == pytest.approx(LIMIT / 2)
        await be_silent(two, laid_out)
        await beat(first)
        assert share_of(first) == LIMIT


async def test_who_comes_back_to_life(laid_out: str, journals: Journals) -> None:
    """An owner that counted as dead polls nothing before all others have counted it again."""
    one, two, _ = journals
    async with joined(one) as first, joined(two) as second:
        await beat(first, second)
        await stop_beating(two)
        heartbeat_of(two)._heard = LONG_AGO
        record_silence(laid_out, two)
        await beat(first)
        assert (share_of(first), share_of(second)) == (LIMIT, 0)
        await beat(second, second)
        assert share_of(second) == 0
        await beat(first)
        assert share_of(first) == pytest.approx(LIMIT / 2)
        await beat(second)
        assert share_of(second) == pytest.approx(LIMIT / 2)


async def test_a_count_that_is_late(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count whose answer comes after that of a later one takes no share that another owner has by then."""
    one, two, _ = journals
    async with joined(one) as first:
        heartbeat = heartbeat_of(one)
        read, asked, answered = heartbeat._database.read, asyncio.Event(), asyncio.Event()

        async def slow(*arguments: object, **settings: object) -> object:
            monkeypatch.setattr(heartbeat._database, "read", read)  # only the first one is slow
            found = await read(*arguments, **settings)  # type: ignore[arg-type]  # passed on as they came
            asked.set()
            await answered.wait()
            return found

        monkeypatch.setattr(heartbeat._database, "read", slow)
        late = asyncio.ensure_future(heartbeat.beat())
        await asked.wait()
        async with joined(two) as second:
            later = asyncio.ensure_future(heartbeat.beat())
            await until(lambda: later.done() or heartbeat._one_beat._waiters)
            answered.set()
            await asyncio.gather(late, later)
            await beat(second)
            assert share_of(first) == share_of(second) == pytest.approx(LIMIT / 2)


class World:
    """Processes whose owners come, go, die, stand still and come back, in an order that a seed draws."""

    def __init__(self, database: str, journals: Journals, seed: int) -> None:
        self._database = database
        self._journals = journals
        self._random = Random(seed)  # noqa: S311 - no secret
        self._stack = AsyncExitStack()
        self._owners: list[tuple[Process, AsyncExitStack]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._owners:
            await self._leave()

    async def step(self) -> None:
        """Let one thing happen."""
        await self._random.choice((self._join, self._leave, self._beat, self._beat, self._beat, self._fall_silent))()

    async def settle(self) -> None:
        """Let all processes give signs of life until each owner is counted."""
        for _ in range(3):
            for journal in self._journals:
                await heartbeat_of(journal).beat()

    def shares(self) -> list[float]:
        """Return what each owner may poll per second."""
        return [share_of(process) or 0.0 for process, _ in self._owners]

    async def _join(self) -> None:
        if len(self._owners) < 6:
            stack = AsyncExitStack()
            process = await stack.enter_async_context(joined(self._random.choice(self._journals)))
            self._owners.append((process, stack))

    async def _leave(self) -> None:
        if self._owners:
            _, stack = self._owners.pop(self._random.randrange(len(self._owners)))
            await stack.aclose()

    async def _beat(self) -> None:
        await heartbeat_of(self._random.choice(self._journals)).beat()

    async def _fall_silent(self) -> None:
        """Let a process stand still: first it stops to poll by itself, then it may count as dead for the others."""
        journal = self._random.choice(self._journals)
        heartbeat_of(journal)._heard = LONG_AGO
        if self._random.random() < 0.7:
            record_silence(self._database, journal)


@pytest.mark.parametrize("seed", range(6))
async def test_shares_of_all(laid_out: str, journals: Journals, seed: int) -> None:
    """Whoever comes, goes, dies or stands still, all shares together are never above the limit, and are it in the end.

    Polls of one session are as far apart as its share says: all start at most the limit and one of each per second.
    """
    async with World(laid_out, journals, seed) as world:
        sums = []
        for _ in range(40):
            await world.step()
            sums.append(sum(world.shares()))
        assert max(sums) <= LIMIT * 1.000001
        await world._join()
        await world.settle()
        assert sum(world.shares()) == pytest.approx(LIMIT)
