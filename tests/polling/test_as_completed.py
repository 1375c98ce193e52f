"""Many waits through a tracker: their results as they come."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, cast

import pytest

from agentjobs_async import (
    AgentJob,
    AuthError,
    InvalidInputError,
    JobRef,
    JobStatus,
    JobTracker,
    NotFoundError,
    PollBudget,
    SessionClosedError,
    WaitEnded,
    WaitResult,
    WaitTimeoutError,
)
from agentjobs_async._polling.as_completed import AHEAD
from tests.polled import (
    ACTIVE,
    DONE,
    REF,
    Polled,
    assert_nothing_left,
    clock,
    every,
    forbidden,
    in_memory,
    let_go,
    living,
    never,
    refs,
)
from tests.rows import failures, failures_at_once

pytestmark = in_memory


# Results.


def test_result() -> None:
    """A result gives its job, or raises its error; one with neither is nobody's."""
    assert WaitResult(REF, DONE).result() is DONE
    error = NotFoundError(404, None, None, "no")
    with pytest.raises(NotFoundError) as caught:
        WaitResult(REF, None, error).result()
    assert caught.value is error
    with pytest.raises(LookupError):
        WaitResult(REF).result()


# Results as they come.


def as_list(jobs: list[JobRef]) -> object:
    return jobs


def as_generator(jobs: list[JobRef]) -> Iterator[JobRef]:
    yield from jobs


async def as_async_generator(jobs: list[JobRef]) -> AsyncIterator[JobRef]:
    for job in jobs:
        yield job
        await asyncio.sleep(0)


Source = Callable[[list[JobRef]], Any]
SOURCES: Final[tuple[Source, ...]] = (as_list, tuple, as_generator, as_async_generator)


async def test_in_order_of_completion() -> None:
    """Results come in the order in which the jobs end, whatever the source; then the iteration ends."""

    async def check(source: Source) -> None:
        begun = clock()
        get_job = living(job_0=begun + 50, job_1=begun + 10, job_2=begun + 30, job_3=begun)
        async with JobTracker(get_job, policy=every(1)) as tracker, tracker.as_completed(source(refs(4))) as finished:
            results = [result async for result in finished]
            assert [result.ref.job_id for result in results] == ["job_3", "job_1", "job_2", "job_0"]
            assert all(result.job and result.error is None for result in results)
            assert [result async for result in finished] == []
            assert tracker.stats().jobs == 0
            async with tracker.as_completed(source([])) as none:
                assert [result async for result in none] == []

    assert await failures_at_once(check, *SOURCES) == {}
    assert_nothing_left_of_loop()


async def test_failures_are_values() -> None:
    """A job that fails, in whatever way, disturbs no other: its error is a value."""
    error = LookupError("mine")
    steps: dict[str, Any] = {"job_0": [error], "job_1": [forbidden], "job_2": ["failed"], "job_3": ["active"]}
    steps |= {"job_4": [asyncio.CancelledError()], "job_5": [never]}
    kinds = [LookupError, AuthError, type(None), WaitTimeoutError, asyncio.CancelledError, WaitTimeoutError, type(None)]

    async def check(source: Source) -> None:
        async with (
            JobTracker(Polled("completed", jobs=steps), policy=every(1)) as tracker,
            tracker.as_completed(source(refs(7)), timeout=5) as finished,
        ):
            results = {result.ref.job_id: result async for result in finished}
        assert [type(results[ref.job_id].error) for ref in refs(7)] == kinds
        assert results["job_0"].error is error
        assert results["job_2"].result().status is JobStatus.FAILED

    assert await failures_at_once(check, *SOURCES) == {}


async def test_what_is_known_already() -> None:
    """Jobs that have ended come first, without a poll, each told to the hooks; duplicates are waits of their own."""
    events: list[Any] = []
    get_job = Polled("active", "completed")
    jobs: list[AgentJob | JobRef] = [REF, DONE, ACTIVE, REF, refs(1)[0], DONE]
    async with (
        JobTracker(get_job, policy=every(3), hooks=[events.append]) as tracker,
        tracker.as_completed(jobs) as finished,
    ):
        results = [result async for result in finished]
    assert [result.job for result in results[:2]] == [DONE, DONE]
    assert [result.ref.job_id for result in results[2:]] == ["job_1", "job_1", "job_1", "job_0"]
    assert get_job.at() == [0, 3]
    assert sum(isinstance(event, WaitEnded) for event in events) == 6


async def test_leaving_early() -> None:
    """Leaving the block, however, stops its polling at once, and leaves nothing behind."""

    async def check(source: Source, leave: str) -> None:
        get_job = living(job_1=clock() + 3, **{f"job_{number}": 1000 for number in (0, *range(2, 30))})

        async def use(tracker: JobTracker) -> None:
            async with tracker.as_completed(source(refs(30))) as finished:
                if leave == "unread":
                    await asyncio.sleep(5)
                    return
                async for _ in finished:
                    if leave == "break":
                        break
                    if leave == "raise":
                        raise ZeroDivisionError

        async with JobTracker(get_job, policy=every(1), budget=PollBudget(in_flight=2)) as tracker:
            using = asyncio.ensure_future(use(tracker))
            await asyncio.sleep(6)
            using.cancel()
            await asyncio.wait([using])
            assert (tracker.stats().jobs, tracker.stats().due, tracker.stats().in_flight) == (0, 0, 0)
            asked = len(get_job.asked)
            await asyncio.sleep(60)
            assert len(get_job.asked) == asked
        assert using.cancelled() is (leave == "cancel")
        if leave == "raise":
            assert isinstance(using.exception(), ZeroDivisionError)

    ways = ("break", "raise", "cancel", "unread")
    assert await failures_at_once(check, *((source, way) for source in SOURCES for way in ways)) == {}
    assert_nothing_left_of_loop()


def assert_nothing_left_of_loop() -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_endless_source() -> None:
    """An async source without end is read a bounded number ahead of the results, and closed at the end."""
    given, closed = 0, False

    async def endless() -> AsyncIterator[JobRef]:
        nonlocal given, closed
        try:
            while True:
                given += 1
                yield JobRef("docs", f"job_{given}")
        finally:
            closed = True

    async with JobTracker(Polled("completed")) as tracker:
        async with tracker.as_completed(endless()) as finished:
            await asyncio.sleep(10)
            assert given == AHEAD
            for read in range(1, 2500):
                await anext(finished)
                assert given <= AHEAD + read
            await let_go()
            assert given == AHEAD + read
            assert len(cast("Any", finished)._members) <= 2 * AHEAD  # those that have ended are not kept
        assert closed
        await let_go()
        assert_nothing_left(tracker)


async def test_endless_generator() -> None:
    """A generator without end is read a bounded number ahead, too."""
    given = 0

    def endless() -> Iterator[JobRef]:
        nonlocal given
        while True:
            given += 1
            yield JobRef("docs", f"job_{given}")

    async with JobTracker(Polled("completed")) as tracker:
        async with tracker.as_completed(endless()) as finished:
            assert given == AHEAD
            await asyncio.sleep(10)
            assert given == AHEAD
            for _ in range(1500):
                await anext(finished)
            assert 1500 < given <= AHEAD + 1500
        await let_go()
        assert_nothing_left(tracker)


async def test_endless_generator_of_ended_jobs() -> None:
    """Jobs that have ended already are read a bounded number ahead, too, and given one after the other."""

    def endless() -> Iterator[AgentJob]:
        while True:
            yield DONE

    async with JobTracker(Polled()) as tracker, tracker.as_completed(endless()) as finished:
        results = [await anext(finished) for _ in range(2 * AHEAD + 1)]
    assert {result.job for result in results} == {DONE}


async def test_source_that_trickles() -> None:
    """Results come while the source is still to give more, and the timeout counts from when a job is read."""
    seen: list[tuple[float, str, bool]] = []

    async def trickle() -> AsyncIterator[JobRef]:
        for ref in refs(3):
            await asyncio.sleep(10)
            yield ref

    get_job = Polled("completed", jobs={"job_1": ["active"]})
    async with JobTracker(get_job, policy=every(1)) as tracker, tracker.as_completed(trickle(), timeout=15) as finished:
        async for result in finished:
            seen.append((round(clock(), 1), result.ref.job_id, result.error is None))
    assert seen == [(10, "job_0", True), (30, "job_2", True), (35, "job_1", False)]


async def test_source_that_raises() -> None:
    """What a source raises comes out of the iteration, once; what it gave before is still waited for."""

    async def check(error: BaseException) -> None:
        async def broken_later() -> AsyncIterator[JobRef]:
            yield refs(1)[0]
            yield REF
            await asyncio.sleep(5)
            raise error

        def broken() -> Iterator[JobRef]:
            yield refs(1)[0]
            yield REF
            raise error

        get_job = Polled("completed", jobs={"job_1": [*["active"] * 9, "completed"]})
        async with JobTracker(get_job, policy=every(1)) as tracker:
            for source in (broken_later, broken):
                async with tracker.as_completed(source()) as finished:
                    refs_given = [(await anext(finished)).ref] if source is broken_later else []
                    with pytest.raises(type(error)) as caught:
                        await anext(finished)
                    assert caught.value is error
                    assert [*refs_given, *[result.ref async for result in finished]] == [refs(1)[0], REF]

    own = ZeroDivisionError("mine"), asyncio.CancelledError("mine"), GeneratorExit("mine")
    assert await failures_at_once(check, *own) == {}
    assert_nothing_left_of_loop()


async def test_bad_item() -> None:
    """An item that is no job is refused: in a list before anything begins, in another source when its turn comes."""
    get_job = Polled("completed")

    async def check(bad: Any) -> None:
        with pytest.raises(InvalidInputError, match="job must be"):
            tracker.as_completed([REF, bad])
        assert get_job.asked == []
        for made in (as_generator, as_async_generator):
            async with tracker.as_completed(made([REF, bad, REF])) as finished:
                results = []
                with pytest.raises(InvalidInputError, match="job must be"):
                    results += [await anext(finished), await anext(finished)]
                results += [result async for result in finished]

    async with JobTracker(get_job) as tracker:
        assert await failures_at_once(check, "job_1", None, 5) == {}
        assert_nothing_left(tracker)


async def test_no_source() -> None:
    """What is no iterable of jobs is refused, a lone id among it."""

    def check(jobs: Any) -> None:
        with pytest.raises(InvalidInputError, match="jobs must be an iterable"):
            tracker.as_completed(jobs)

    async with JobTracker(Polled()) as tracker:
        assert failures(check, None, 5, "job_1", b"job_1", REF) == {}


async def test_iterated_outside_of_its_block() -> None:
    """To iterate without the block would leak, or hang: it is refused. A block is entered once."""
    async with JobTracker(Polled("completed")) as tracker:
        for made in (
            tracker.as_completed([REF]),
            tracker.as_completed(as_async_generator([REF])),
            tracker.updates(REF),
        ):
            block: Any = made
            with pytest.raises(InvalidInputError, match="within the block"):
                await anext(block)
            async with block as results:
                assert len([result async for result in results]) == 1
            with pytest.raises(InvalidInputError, match=r"used already: call (as_completed|updates) again"):
                await block.__aenter__()


async def test_source_that_does_not_leave() -> None:
    """A source that swallows its cancellation does not hold up leaving, and what it yields then is not polled."""
    get_job, released = Polled("active"), asyncio.Event()

    async def stubborn() -> AsyncIterator[JobRef]:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        while True:
            yield REF
            await asyncio.sleep(0)

    async with JobTracker(get_job) as tracker:
        began = clock()
        async with tracker.as_completed(stubborn()):
            await asyncio.sleep(1)
        assert clock() == began + 1
        released.set()
        await let_go()
        assert (tracker.stats().jobs, get_job.asked) == (0, [])
    assert_nothing_left_of_loop()


async def test_async_iterable_that_is_no_generator() -> None:
    """Any async iterable serves as a source, a queue's reader for one."""
    queue: asyncio.Queue[JobRef] = asyncio.Queue()

    class Reader:
        def __aiter__(self) -> AsyncIterator[JobRef]:
            return self

        async def __anext__(self) -> JobRef:
            return await queue.get()

    async with JobTracker(Polled("completed")) as tracker:
        async with tracker.as_completed(Reader()) as finished:
            for ref in refs(3):
                queue.put_nowait(ref)
                assert (await anext(finished)).ref == ref
        assert_nothing_left(tracker)


async def test_tracker_closed_in_the_middle() -> None:
    """When the tracker is closed meanwhile, each wait's end is a value; a source that goes on gets the error."""

    async def check(made: Source) -> None:
        tracker = JobTracker(Polled(jobs={"job_0": ["completed"]}))
        async with tracker.as_completed(made(refs(5))) as finished:
            assert (await anext(finished)).job
            await asyncio.sleep(1)
            await tracker.aclose()
            results = [result async for result in finished]
        assert {type(result.error) for result in results} == {SessionClosedError}
        assert len(results) == 4
        with pytest.raises(SessionClosedError):
            async with tracker.as_completed(made(refs(5))):
                pass

    assert await failures_at_once(check, *SOURCES) == {}


async def test_closed_while_a_source_goes_on() -> None:
    """What a source gives after the tracker was closed is refused, and that comes out of the iteration."""

    async def trickle() -> AsyncIterator[JobRef]:
        for ref in refs(3):
            yield ref
            await asyncio.sleep(10)

    tracker = JobTracker(Polled("completed"))
    async with tracker.as_completed(trickle()) as finished:
        assert (await anext(finished)).job
        await tracker.aclose()
        with pytest.raises(SessionClosedError):
            await anext(finished)


async def endless(jobs: list[JobRef]) -> AsyncIterator[JobRef]:
    for job in jobs:
        yield job
    await asyncio.Event().wait()


async def test_reader_when_the_block_is_left() -> None:
    """A reader in another task ends when the block is left, and so does an iteration that begins after it."""

    async def read(finished: AsyncIterator[WaitResult]) -> list[WaitResult]:
        return [result async for result in finished]

    async def check(made: Source) -> None:
        async with JobTracker(Polled("active"), policy=every(5)) as tracker:
            async with tracker.as_completed(made([REF])) as finished:
                during = asyncio.ensure_future(read(finished))
                await asyncio.sleep(12)
            after = asyncio.ensure_future(read(finished))
            await asyncio.wait([during, after], timeout=60)
            assert [reader.done() and reader.result() for reader in (during, after)] == [[], []]

    assert await failures_at_once(check, as_list, iter, endless) == {}
