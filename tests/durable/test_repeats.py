"""Durable jobs whose creates are in doubt, on a service that honours idempotency keys."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from agentjobs_async import AgentJob, NotSentError, SessionClosedError
from agentjobs_async.batch import Journal, JournalRow, State, _failures
from agentjobs_async.batch._store.owning import has_owner
from agentjobs_async.durable import DurableJobs, _creates, _waiting
from agentjobs_async.durable._creates import Creates
from tests.batch.stage import not_sent
from tests.durable.listener import Listener
from tests.keyed import Keyed, keyed
from tests.until import until


@pytest.fixture(autouse=True)
def _quick_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_failures, "_FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def service() -> AsyncIterator[Keyed]:
    async with keyed() as found:
        yield found


@pytest.fixture
async def journal(location: str) -> AsyncIterator[Journal]:
    async with Journal.open(location) as opened:
        yield opened


async def test_submit_waits(service: Keyed, journal: Journal, listener: Listener) -> None:
    """A submit waits until its create in doubt is settled, and `on_end` is told of the job alone."""
    service.script["p"] = ["lost", 409, "cut", "ok"]
    async with service.session() as session, DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        entry = await jobs.submit("k", "p")
        await listener.ends(1)
    assert (entry.state, service.agents["p"], len(set(service.keys_of("p")))) == ("active", 1, 1)
    assert listener.called == [("k", "completed")]


async def test_given_up(service: Keyed, journal: Journal, listener: Listener) -> None:
    """A create that can't be repeated any more is told as unknown, once."""
    service.script["p"] = ["lost", 422]
    async with service.session() as session, DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        entry = await jobs.submit("k", "p")
        await listener.ends(1)
    assert entry.state == "unknown"
    assert listener.called == [("k", "CreateOutcomeUnknownError")]
    assert len(service.posts) == 2


async def test_the_next_start(service: Keyed, journal: Journal, listener: Listener) -> None:
    """A start repeats the creates that an earlier one has left in doubt, and tells of no unknown end."""
    service.script["p"] = ["lost", *[409] * 1000]
    async with service.session() as session:
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            await jobs.submit("k", "p", wait_for_create=False)
            await service.posted(3)
        assert listener.called == []
        service.script.clear()
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            entry = await jobs.submit("k", "p")
            await listener.ends(1)
    assert (str(entry.state), service.agents["p"]) in {("active", 1), ("completed", 1)}
    assert listener.called == [("k", "completed")]


async def test_the_next_start_without_on_end(service: Keyed, journal: Journal) -> None:
    """A start repeats what is in doubt as well where no process has an `on_end`, and follows the job to its end."""
    service.script["p"] = ["lost", *[409] * 1000]
    async with service.session() as session:
        async with DurableJobs(session, journal) as jobs:
            await jobs.submit("k", "p", wait_for_create=False)
            await service.posted(3)
        service.script.clear()
        async with DurableJobs(session, journal) as jobs:
            entry = await jobs.wait("k", timeout=30)
    assert (str(entry.state), service.agents["p"], len(set(service.keys_of("p")))) == ("completed", 1, 1)


@pytest.mark.parametrize("how", ["abandon", "unfollow"])
async def test_what_a_user_wants_no_more(service: Keyed, journal: Journal, listener: Listener, how: str) -> None:
    """A create in doubt is repeated no more once its job was abandoned or unfollowed."""
    service.script["p"] = ["lost", *[409] * 1000]
    async with service.session() as session:
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            await jobs.submit("k", "p", wait_for_create=False)
            await service.posted(3)
            if how == "unfollow":
                assert await jobs.unfollow("k")
            else:
                while True:
                    try:
                        await jobs.abandon("k")
                    except Exception:  # noqa: BLE001 - it is being sent in this moment
                        await asyncio.sleep(0)
                    else:
                        break
                await listener.ends(1)
            posts = len(service.posts)
        async with DurableJobs(session, journal, on_end=listener.on_end):
            pass
    assert len(service.posts) - posts <= 1
    assert listener.called == ([] if how == "unfollow" else [("k", "AgentJobsError")])


async def test_held_back(service: Keyed, journal: Journal, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A create in doubt that could not be repeated since the proxy refused is repeated later, and told of then."""
    monkeypatch.setattr(_creates, "_HELD_SECONDS", 0.05)
    service.script["p"] = ["lost"]
    async with service.session() as session:
        real, faults = session.create_job, iter([None, not_sent("proxy")])

        async def create(*arguments: Any, **named: Any) -> AgentJob:
            if (fault := next(faults, None)) is not None:
                raise fault
            return await real(*arguments, **named)

        monkeypatch.setattr(session, "create_job", create)
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            with pytest.raises(NotSentError):
                await jobs.submit("k", "p")
            await listener.ends(1)
    assert listener.called == [("k", "completed")]
    assert (service.agents["p"], len(set(service.keys_of("p")))) == (1, 1)


async def test_wait_after_a_start(service: Keyed, journal: Journal, listener: Listener) -> None:
    """A wait that begins before the next start has taken a create in doubt goes on until the job ends."""
    service.script["p"] = ["lost", *[409] * 1000]
    async with service.session() as session:
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            await jobs.submit("k", "p", wait_for_create=False)
            await service.posted(3)
        service.script.clear()
        async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
            entry = await jobs.wait("k", timeout=30)
    assert (entry.state, service.agents["p"]) == ("completed", 1)


async def test_wait_for_what_is_repeated_no_more(
    service: Keyed, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait goes on while a create in doubt is to be repeated, and ends once that is given up."""
    monkeypatch.setattr(_failures, "_FIRST_PAUSE_SECONDS", 60)
    service.script["p"] = ["lost"]
    async with service.session() as session, DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "p", wait_for_create=False)
        waiting = asyncio.create_task(jobs.wait("k", timeout=30))
        async with jobs.updates("k") as changes:
            while (await anext(changes)).state is not State.UNKNOWN:
                pass
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        await jobs.unfollow("k")
        assert (await waiting).state is State.UNKNOWN


async def test_wait_for_what_nobody_takes(service: Keyed, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait ends where a create in doubt could be repeated, and no process takes it."""

    async def none(_creates: Creates) -> list[JournalRow]:
        return []

    monkeypatch.setattr(_failures, "_FIRST_PAUSE_SECONDS", 60)
    monkeypatch.setattr(_waiting, "_TAKING_SECONDS", 0.0)
    monkeypatch.setattr(Creates, "left_in_doubt", none)  # as where no process can read the journal
    service.script["p"] = ["lost"]
    async with service.session() as session:
        async with DurableJobs(session, journal) as jobs:
            await jobs.submit("k", "p", wait_for_create=False)
            async with jobs.updates("k") as changes:
                while (await anext(changes)).state is not State.UNKNOWN:
                    pass
        async with DurableJobs(session, journal) as jobs:
            assert (await jobs.wait("k", timeout=30)).state is State.UNKNOWN


async def test_wait_for_what_another_process_takes(
    service: Keyed, laid_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait goes on where another process takes a create in doubt just after the wait has looked who has it."""
    is_repeated, looks = Creates.is_repeated, list[str]()

    async def looked(creates: Creates, key: str) -> bool:
        looks.append(key)
        return len(looks) > 1 and await is_repeated(creates, key)  # the first look comes before the row is taken

    async def is_unknown_and_owned() -> bool:
        return await has_owner(other.store, "k") and (await other.rows())[0].state is State.UNKNOWN

    monkeypatch.setattr(Creates, "is_repeated", looked)
    monkeypatch.setattr(_failures, "_FIRST_PAUSE_SECONDS", 60)
    service.script["p"] = ["lost"]
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as other, service.session() as session:
        async with DurableJobs(session, one) as sending, DurableJobs(session, other) as jobs:
            await sending.submit("k", "p", wait_for_create=False)
            await until(is_unknown_and_owned)
            waiting = asyncio.create_task(jobs.wait("k", timeout=30))
            await until(lambda: len(looks) > 2 or waiting.done())
            await sending.abandon("k")
            assert (await waiting).state is State.ABANDONED


async def test_wait_as_all_is_closed(service: Keyed, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that looks who repeats a create in doubt, just as the jobs and their journal are closed, says that."""
    is_repeated, opened = Creates.is_repeated, AsyncExitStack()

    async def looked(creates: Creates, key: str) -> bool:
        await opened.aclose()
        return await is_repeated(creates, key)

    monkeypatch.setattr(Creates, "is_repeated", looked)
    monkeypatch.setattr(_failures, "_FIRST_PAUSE_SECONDS", 60)
    service.script["p"] = ["lost"]
    async with service.session() as session:
        journal = await opened.enter_async_context(Journal.open(location))
        jobs = await opened.enter_async_context(DurableJobs(session, journal))
        await jobs.submit("k", "p", wait_for_create=False)
        with pytest.raises(SessionClosedError):
            await jobs.wait("k", timeout=30)
