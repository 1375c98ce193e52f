"""The faces of a wait through a tracker: futures, results as they come, and one job's changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

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
from agentjobs_async.testing import Emulator, JobLife
from agentjobs_async.watching import AHEAD
from tests.polled import REF, Polled, clock, every, refs

pytestmark = pytest.mark.looptime

ACTIVE: Final = AgentJob("job_1", "docs", "active")
DONE: Final = AgentJob("job_1", "docs", "completed")


def changed(model: str) -> AgentJob:
    return AgentJob("job_1", "docs", "active", model=model)


async def ended_after(seconds: dict[str, float], ref: JobRef) -> str:
    """Answer as a job would that runs so long from the beginning of the loop's time."""
    return "completed" if clock() >= seconds[ref.job_id] else "active"


def living(**seconds: float) -> Polled:
    """Give a service whose jobs end at these times."""

    async def state(ref: JobRef) -> str:
        return await ended_after(seconds, ref)

    return Polled(state)


def assert_nothing_left(tracker: JobTracker) -> None:
    stats = tracker.stats()
    assert (stats.jobs, stats.due, stats.in_flight) == (0, 0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def let_go() -> None:
    """Let what was cancelled leave."""
    for _ in range(5):
        await asyncio.sleep(0)


async def never(_ref: JobRef) -> object:
    return await asyncio.Event().wait()


async def forbidden(_ref: JobRef) -> object:
    raise AuthError(401, None, None, "no")


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


# Futures.


async def test_watch() -> None:
    """A watch is a future: awaited by many, with callbacks, and its job stays in it."""
    called: list[object] = []
    async with JobTracker(Polled("active", "completed"), policy=every(2)) as tracker:
        watch = tracker.watch(REF)
        assert asyncio.isfuture(watch)
        watch.add_done_callback(called.append)
        results = await asyncio.gather(watch, watch, asyncio.wait_for(watch, 10))
        assert results == [DONE] * 3
        assert (called, watch.result()) == ([watch], DONE)
        assert not watch.cancel()
        assert_nothing_left(tracker)


async def test_watch_cancelled() -> None:
    """Cancelling a watch leaves, once, with its message; cancelling it again is no more than with any future."""
    events: list[Any] = []
    async with JobTracker(Polled("active"), policy=every(2), hooks=[events.append]) as tracker:
        watch = tracker.watch(REF)
        await asyncio.sleep(1)
        assert watch.cancel("enough")
        assert not watch.cancel()
        assert watch.cancelled()
        assert_nothing_left(tracker)
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await watch
    assert [type(event).__name__ for event in events] == ["JobPolled", "WaitEnded"]


async def test_cancelled_task_leaves() -> None:
    """Cancelling the task that waits leaves, be it by hand or by a timeout around it."""
    async with JobTracker(Polled(never)) as tracker:
        waiting = asyncio.ensure_future(tracker.wait_for_job(REF))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await let_go()
        assert_nothing_left(tracker)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await tracker.wait_for_job(REF)
        await let_go()
        assert_nothing_left(tracker)


async def test_on_update() -> None:
    """`on_update` sees the job at first sight and at each change; one that raises is logged, and disturbs nobody."""
    seen: list[list[AgentJob]] = [[], [], []]

    def faulty(job: AgentJob) -> None:
        seen[2].append(job)
        raise ZeroDivisionError

    get_job = Polled("active", "active", changed("m"), OSError(), changed("m"), "completed")
    async with JobTracker(get_job, policy=every(2)) as tracker:
        first = asyncio.ensure_future(tracker.wait_for_job(REF, on_update=seen[0].append))
        third = asyncio.ensure_future(tracker.wait_for_job(REF, on_update=faulty))
        await asyncio.sleep(1)
        known = AgentJob("job_1", "docs", "active", model="older")
        second = asyncio.ensure_future(tracker.wait_for_job(known, on_update=seen[1].append))
        await asyncio.gather(first, second, third)
    assert seen == [
        [ACTIVE, changed("m"), DONE],
        [known, ACTIVE, changed("m"), DONE],
        [ACTIVE, changed("m"), DONE],
    ]


async def test_late_comer_is_told_at_once() -> None:
    """Who joins a job that the tracker has seen already is told its state at once."""
    seen: list[AgentJob] = []
    async with JobTracker(Polled(), policy=every(60)) as tracker:
        watch = tracker.watch(REF)
        await asyncio.sleep(10)
        late = asyncio.ensure_future(tracker.wait_for_job(REF, on_update=seen.append))
        await asyncio.sleep(0)
        assert seen == [ACTIVE]
        watch.cancel()
        late.cancel()
        await asyncio.gather(watch, late, return_exceptions=True)


async def test_on_update_that_leaves() -> None:
    """`on_update` may cancel its own wait and others: they leave, and the others go on."""
    waits: list[asyncio.Task[AgentJob]] = []

    def leave(_job: AgentJob) -> None:
        for wait in waits[:2]:
            wait.cancel()

    async with JobTracker(Polled("active", "completed", latency=1), policy=every(1)) as tracker:
        waits += [asyncio.ensure_future(tracker.wait_for_job(REF, on_update=leave)) for _ in range(3)]
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert_nothing_left(tracker)
    assert [type(result) for result in results] == [asyncio.CancelledError, asyncio.CancelledError, AgentJob]


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


@pytest.fixture(params=[as_list, tuple, as_generator, as_async_generator])
def source(request: pytest.FixtureRequest) -> Source:
    made: Source = request.param
    return made


async def test_in_order_of_completion(source: Source) -> None:
    """Results come in the order in which the jobs end, whatever the source; then the iteration ends."""
    get_job = living(job_0=50, job_1=10, job_2=30, job_3=0)
    async with (
        JobTracker(get_job, policy=every(1)) as tracker,
        tracker.as_completed(source(refs(4))) as finished,
    ):
        results = [result async for result in finished]
        assert [result.ref.job_id for result in results] == ["job_3", "job_1", "job_2", "job_0"]
        assert all(result.job and result.error is None for result in results)
        assert [result async for result in finished] == []
        assert_nothing_left(tracker)


async def test_no_jobs(source: Source) -> None:
    """Without jobs the iteration ends at once."""
    async with JobTracker(Polled()) as tracker, tracker.as_completed(source([])) as finished:
        assert [result async for result in finished] == []


async def test_failures_are_values(source: Source) -> None:
    """A job that fails, in whatever way, disturbs no other: its error is a value."""
    error = LookupError("mine")
    steps = {"job_0": [error], "job_1": [forbidden], "job_2": ["failed"], "job_3": ["active"]}
    steps |= {"job_4": [asyncio.CancelledError()], "job_5": [never]}
    get_job = Polled("completed", jobs=steps)
    async with (
        JobTracker(get_job, policy=every(1)) as tracker,
        tracker.as_completed(source(refs(7)), timeout=5) as finished,
    ):
        results = {result.ref.job_id: result async for result in finished}
    kinds = [type(results[ref.job_id].error) for ref in refs(7)]
    assert kinds == [
        *(LookupError, AuthError, type(None), WaitTimeoutError),
        *(asyncio.CancelledError, WaitTimeoutError, type(None)),
    ]
    assert results["job_0"].error is error
    assert results["job_2"].result().status is JobStatus.FAILED


async def test_what_is_known_already() -> None:
    """Jobs that have ended come first, without a poll, each told to the hooks; duplicates are waits of their own."""
    events: list[Any] = []
    get_job = Polled("active", "completed")
    jobs = [REF, DONE, ACTIVE, REF, refs(1)[0], DONE]
    async with (
        JobTracker(get_job, policy=every(3), hooks=[events.append]) as tracker,
        tracker.as_completed(jobs) as finished,
    ):
        results = [result async for result in finished]
    assert [result.job for result in results[:2]] == [DONE, DONE]
    assert [result.ref.job_id for result in results[2:]] == ["job_1", "job_1", "job_1", "job_0"]
    assert get_job.at() == [0, 3]
    assert sum(isinstance(event, WaitEnded) for event in events) == 6


@pytest.mark.parametrize("leave", ["break", "raise", "cancel", "unread"])
async def test_leaving_early(source: Source, leave: str) -> None:
    """Leaving the block, however, stops its polling at once, and leaves nothing behind."""
    get_job = living(job_1=3, **{f"job_{number}": 1000 for number in (0, *range(2, 30))})

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
        await let_go()
        assert_nothing_left(tracker)
        asked = len(get_job.asked)
        await asyncio.sleep(60)
        assert len(get_job.asked) == asked
    assert using.cancelled() is (leave == "cancel")
    if leave == "raise":
        assert isinstance(using.exception(), ZeroDivisionError)


async def test_endless_source() -> None:
    """An async source without end is taken a bounded number ahead of the results, and closed at the end."""
    taken, closed = 0, False

    async def endless() -> AsyncIterator[JobRef]:
        nonlocal taken, closed
        try:
            while True:
                taken += 1
                yield JobRef("docs", f"job_{taken}")
        finally:
            closed = True

    async with JobTracker(Polled("completed")) as tracker:
        async with tracker.as_completed(endless()) as finished:
            await asyncio.sleep(10)
            assert taken == AHEAD
            for read in range(1, 2500):
                await anext(finished)
                assert taken <= AHEAD + read
            await let_go()
            assert taken == AHEAD + read
        assert closed
        assert_nothing_left(tracker)


async def test_endless_generator() -> None:
    """A generator without end is taken a bounded number ahead, too."""
    taken = 0

    def endless() -> Iterator[JobRef]:
        nonlocal taken
        while True:
            taken += 1
            yield JobRef("docs", f"job_{taken}")

    async with JobTracker(Polled("completed")) as tracker:
        async with tracker.as_completed(endless()) as finished:
            assert taken == AHEAD
            await asyncio.sleep(10)
            assert taken == AHEAD
            for _ in range(1500):
                await anext(finished)
            assert 1500 < taken <= AHEAD + 1500
        assert_nothing_left(tracker)


async def test_endless_generator_of_ended_jobs() -> None:
    """Jobs that have ended already are taken a bounded number ahead, too, and given one after the other."""

    def endless() -> Iterator[AgentJob]:
        while True:
            yield DONE

    async with JobTracker(Polled()) as tracker, tracker.as_completed(endless()) as finished:
        results = [await anext(finished) for _ in range(2 * AHEAD + 1)]
    assert {result.job for result in results} == {DONE}


async def test_source_that_trickles() -> None:
    """Results come while the source is still to give more, and the timeout counts from when a job is taken."""
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


@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), asyncio.CancelledError("mine")])
async def test_async_source_that_raises(error: BaseException) -> None:
    """What an async source raises comes out of the iteration, once; what it gave before is still waited for."""

    async def broken() -> AsyncIterator[JobRef]:
        yield refs(1)[0]
        yield REF
        await asyncio.sleep(5)
        raise error

    async with (
        JobTracker(living(job_0=2, job_1=9), policy=every(1)) as tracker,
        tracker.as_completed(broken()) as finished,
    ):
        assert (await anext(finished)).ref == refs(1)[0]
        with pytest.raises(type(error)) as caught:
            await anext(finished)
        assert caught.value is error
        assert [result.ref async for result in finished] == [REF]
    assert_nothing_left_of_loop()


def assert_nothing_left_of_loop() -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_generator_that_raises() -> None:
    """What a generator raises comes out of the iteration, once; what it gave before is still waited for."""
    error = ZeroDivisionError("mine")

    def broken() -> Iterator[JobRef]:
        yield REF
        raise error

    async with JobTracker(Polled("completed")) as tracker, tracker.as_completed(broken()) as finished:
        with pytest.raises(ZeroDivisionError) as caught:
            await anext(finished)
        assert caught.value is error
        assert [result.ref async for result in finished] == [REF]


@pytest.mark.parametrize("bad", ["job_1", None, 5])
async def test_bad_item(bad: Any) -> None:
    """An item that is no job is refused: in a list before anything begins, in another source when its turn comes."""
    get_job = Polled("completed")
    async with JobTracker(get_job) as tracker:
        with pytest.raises(InvalidInputError, match="job must be"):
            tracker.as_completed([REF, bad])
        assert get_job.asked == []
        for made in (as_generator, as_async_generator):
            async with tracker.as_completed(made([REF, bad, REF])) as finished:
                results = []
                with pytest.raises(InvalidInputError, match="job must be"):
                    results += [await anext(finished), await anext(finished)]
                results += [result async for result in finished]
        assert_nothing_left(tracker)


@pytest.mark.parametrize("jobs", [None, 5, "job_1", b"job_1", REF])
async def test_no_source(jobs: Any) -> None:
    """What is no iterable of jobs is refused, a lone id among it."""
    async with JobTracker(Polled()) as tracker:
        with pytest.raises(InvalidInputError, match="jobs must be an iterable"):
            tracker.as_completed(jobs)


@pytest.mark.parametrize("made", [list, as_async_generator])
async def test_iterated_outside_of_its_block(made: Source) -> None:
    """To iterate without the block would leak, or hang: it is refused."""
    async with JobTracker(Polled()) as tracker:
        with pytest.raises(InvalidInputError, match="within the block"):
            await anext(tracker.as_completed(made([REF])))
        with pytest.raises(InvalidInputError, match="within the block"):
            await anext(tracker.updates(REF))


async def test_source_that_does_not_leave() -> None:
    """A source that swallows its cancellation does not hold up leaving."""
    released = asyncio.Event()

    async def stubborn() -> AsyncIterator[JobRef]:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        yield REF

    async with JobTracker(Polled("completed")) as tracker:
        began = clock()
        async with tracker.as_completed(stubborn()):
            await asyncio.sleep(1)
        assert clock() == began + 1
        released.set()
        await let_go()
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


@pytest.mark.parametrize("made", [list, as_generator, as_async_generator])
async def test_tracker_closed_in_the_middle(made: Source) -> None:
    """When the tracker is closed meanwhile, each wait's end is a value; a source that goes on gets the error."""
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


async def test_as_completed_over_http() -> None:
    """Over HTTP, by bare ids too: results come in order, and leaving early asks no more."""
    async with Emulator() as emulator, emulator.session(project_id="docs", policy=every(5)) as session:
        for number in range(4):
            emulator.script(JobLife(duration=20.0 * (4 - number)), prompt=f"Fix {number}")
        created = [await session.create_job(f"Fix {number}") for number in range(4)]
        async with session.as_completed([job.id for job in created]) as finished:
            results = [await anext(finished) for _ in range(2)]
        asked = len(emulator.requests)
        await asyncio.sleep(100)
        assert len(emulator.requests) == asked
    assert [result.ref for result in results] == [created[3].ref, created[2].ref]


# One job's changes.


async def test_updates() -> None:
    """The state now, then each change, until the end, the terminal state included; then the iteration is over."""
    get_job = Polled("active", "active", changed("m"), OSError(), changed("m"), changed("n"), "completed")
    async with JobTracker(get_job, policy=every(5)) as tracker:
        async with tracker.updates(REF) as changes:
            seen = [(round(clock()), job) async for job in changes]
            assert [job async for job in changes] == []
        assert_nothing_left(tracker)
    assert seen == [(0, ACTIVE), (10, changed("m")), (25, changed("n")), (30, DONE)]


async def test_slow_reader_gets_the_newest() -> None:
    """Who reads slowly gets the newest state, no backlog, and the last one in any case."""
    get_job = Polled(*(changed(str(number)) for number in range(100)), "completed")
    async with JobTracker(get_job, policy=every(1)) as tracker, tracker.updates(REF) as changes:
        models = []
        async for job in changes:
            models.append(job.model)
            await asyncio.sleep(30.4)
    assert models == ["0", "30", "60", "91", None]


@pytest.mark.parametrize("known", [ACTIVE, DONE])
async def test_updates_of_a_known_job(known: AgentJob) -> None:
    """A job that is given is the state now; one that has ended is all there is, without a poll."""
    events: list[Any] = []
    get_job = Polled("active", "completed")
    async with JobTracker(get_job, policy=every(5), hooks=[events.append]) as tracker:
        async with tracker.updates(known) as changes:
            assert await anext(changes) is known
            assert [job async for job in changes] == [DONE] * (known is ACTIVE)
    assert get_job.at() == [0, 5][: 2 * (known is ACTIVE)]
    assert sum(isinstance(event, WaitEnded) for event in events) == 1


@pytest.mark.parametrize(
    ("step", "kind"),
    [(forbidden, AuthError), (LookupError(), LookupError), ("active", WaitTimeoutError), (never, WaitTimeoutError)],
)
@pytest.mark.parametrize("first", [[], ["active"]])
async def test_error_of_updates(first: list[object], step: object, kind: type[Exception]) -> None:
    """The wait's error comes out of the iteration after the last state; then the iteration is over."""
    async with (
        JobTracker(Polled(*first, step), policy=every(2)) as tracker,
        tracker.updates(REF, timeout=9) as changes,
    ):
        seen = []
        with pytest.raises(kind):
            async for job in changes:
                seen.append(job)
        assert seen == [ACTIVE] * (bool(first) or step == "active")
        assert [job async for job in changes] == []


async def test_leaving_updates_early() -> None:
    """Leaving the block stops the polling and leaves nothing; the iteration is over, with no error."""
    get_job = Polled("active", never)
    async with JobTracker(get_job, policy=every(2)) as tracker:
        async with tracker.updates(REF) as changes:
            async for _ in changes:
                break
            await asyncio.sleep(3)
        await let_go()
        assert_nothing_left(tracker)
        assert [job async for job in changes] == []
    assert get_job.at() == [0, 2]


async def test_cancelled_amid_updates() -> None:
    """A reader that is cancelled leaves, too."""
    async with JobTracker(Polled(), policy=every(2)) as tracker:

        async def read() -> None:
            async with tracker.updates(REF) as changes:
                async for _ in changes:
                    pass

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(5)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert_nothing_left(tracker)


async def test_updates_share_their_stream() -> None:
    """Readers and waiters of one job share one poll stream, each with its own end."""
    get_job = Polled("active", changed("m"), changed("m"), "completed")
    async with JobTracker(get_job, policy=every(5)) as tracker:
        watch = tracker.watch(REF)
        async with tracker.updates(REF) as first, tracker.updates(REF, timeout=7) as second:
            assert [await anext(first), await anext(second)] == [ACTIVE] * 2
            assert [await anext(first), await anext(second)] == [changed("m")] * 2
            with pytest.raises(WaitTimeoutError):
                await anext(second)
            assert [job async for job in first] == [DONE]
        assert await watch == DONE
    assert get_job.at() == pytest.approx([0, 5, 6.3, 11.3], abs=0.02)


async def test_updates_of_a_closed_tracker() -> None:
    """Closing the tracker ends the iteration with its error; a closed one gives none."""
    tracker = JobTracker(Polled())
    async with tracker.updates(REF) as changes:
        assert await anext(changes) == ACTIVE
        await tracker.aclose()
        with pytest.raises(SessionClosedError):
            await anext(changes)
    with pytest.raises(SessionClosedError):
        async with tracker.updates(REF):
            pass


async def test_updates_over_http() -> None:
    """Over HTTP, a web page's view of a job: each stage once."""
    life = JobLife(duration=60, stages=((20, "planning"), (40, "reviewing")))
    async with Emulator(lives=life) as emulator, emulator.session(project_id="docs", policy=every(3)) as session:
        created = await session.create_job("Fix it")
        async with session.updates(created.id) as changes:
            assert [job.status async for job in changes] == ["active", "planning", "reviewing", "completed"]
