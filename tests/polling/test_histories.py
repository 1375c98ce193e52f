"""Any history of waits through a tracker: one poll per job at a time, every wait ends in time, nothing leaks."""

import asyncio
from collections import Counter
from collections.abc import Sequence, Sized
from typing import Any, Final

import looptime
from hypothesis import given, settings
from hypothesis import strategies as st

from agentjobs_async import (
    AuthError,
    JobPolled,
    JobRef,
    JobTracker,
    NotFoundError,
    NotSentError,
    PollBudget,
    PollFailed,
    ProtocolError,
    RateLimitedError,
    ServerError,
    TransportError,
    WaitEnded,
    WaitStarted,
)
from tests.polled import Polled, clock, every, never, response, stand_still, swallows


async def slow(_ref: JobRef) -> str:
    await asyncio.sleep(0.7)
    return "active"


async def slow_end(_ref: JobRef) -> str:
    await asyncio.sleep(1.5)
    return "completed"


ANSWERS: Final[list[object]] = [
    *("active", "active", "reviewing", "completed", "failed"),
    *(slow, slow, slow_end, never, swallows),
    *(response(ServerError, 500), response(ServerError, 503, 2.0), response(RateLimitedError, 429, 3.0)),
    *(response(NotFoundError, 404), response(AuthError, 401), response(NotFoundError, 410)),
    *(NotSentError("refused"), NotSentError("refused"), TransportError("reset")),
    *(ProtocolError("bad_json", "x"), None, {"id": "job_9", "status": "completed"}),
    *(OSError("mine"), LookupError("mine"), asyncio.CancelledError("mine")),
]
JOBS: Final = st.integers(0, 3).map(lambda number: JobRef("docs", f"job_{number}"))
TIMEOUTS: Final = st.sampled_from([0.3, 1.0, 4.0, 20.0, 60.0])
STEPS: Final = st.one_of(
    st.tuples(st.just("watch"), JOBS, TIMEOUTS | st.none()),
    st.tuples(st.just("watch"), JOBS, TIMEOUTS),
    st.tuples(st.just("wait"), JOBS, TIMEOUTS),
    st.tuples(st.just("group"), st.lists(JOBS, max_size=5), st.integers(0, 4)),
    st.tuples(st.just("updates"), JOBS, st.integers(0, 3)),
    st.tuples(st.just("cancel"), st.integers(0, 30), st.none()),
    st.tuples(st.just("notify"), JOBS, st.integers(1, 3)),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0, 15.0]), st.none()),
    st.tuples(st.just("still"), st.sampled_from([0.5, 10.0]), st.none()),
)


class History:
    """Drives one history through a tracker, and checks as it goes."""

    def __init__(self, answers: dict[str, list[object]], budget: PollBudget) -> None:
        self.get_job = Polled(jobs=answers)
        self.events: list[Any] = []
        self.waits: list[asyncio.Future[Any]] = []
        self.late: list[float] = []
        self.for_nobody: list[JobRef] = []
        self.still = 0.0
        policy = every(1, not_found_grace=3, max_bad_answers=3)
        self.tracker = JobTracker(self._asked, policy=policy, budget=budget, hooks=[self.events.append])
        self.scheduler = self.tracker._scheduler()

    async def _asked(self, ref: JobRef) -> Any:
        if ref not in self.scheduler._jobs:
            self.for_nobody.append(ref)
        return await self.get_job(ref)

    async def step(self, kind: str, what: Any, how: Any) -> None:
        match kind:
            case "watch":
                self._timed(self.tracker.watch(what, timeout=how), how)
            case "wait":
                self._timed(asyncio.ensure_future(self.tracker.wait_for_job(what, timeout=how)), how)
            case "group":
                self.waits.append(asyncio.ensure_future(self._group(what, how)))
            case "updates":
                self.waits.append(asyncio.ensure_future(self._updates(what, how)))
            case "cancel" if self.waits:
                self.waits[what % len(self.waits)].cancel()
            case "notify":
                for _ in range(how):
                    self.tracker.notify(what)
            case "sleep":
                await asyncio.sleep(what)
            case "still":
                stand_still(what)
                self.still += what

    def _timed(self, wait: asyncio.Future[Any], timeout: float | None) -> None:
        self.waits.append(wait)
        if timeout is not None:
            deadline = clock() + timeout
            wait.add_done_callback(lambda _: self.late.append(clock() - deadline))

    async def _group(self, jobs: Sequence[JobRef], count: int) -> None:
        async with self.tracker.as_completed(jobs, timeout=10) as finished:
            async for _ in finished:
                if (count := count - 1) <= 0:
                    break

    async def _updates(self, job: JobRef, count: int) -> None:
        async with self.tracker.updates(job, timeout=10) as changes:
            async for _ in changes:
                await asyncio.sleep(0.5)
                if (count := count - 1) <= 0:
                    break

    async def end(self) -> None:
        """Let everything end, and look for what is left."""
        await asyncio.sleep(200)
        for wait in self.waits:
            wait.cancel()  # of those that wait for ever
        await asyncio.gather(*self.waits, return_exceptions=True)
        assert max(self.late, default=0) <= 0.25 + self.still
        await asyncio.sleep(200)
        stats = self.tracker.stats()
        assert (stats.jobs, stats.due, stats.in_flight, stats.oldest_unobserved) == (0, 0, 0, 0)
        self._nothing_left()
        await self.tracker.aclose()
        self._nothing_left()

    def _nothing_left(self) -> None:
        scheduler = self.scheduler
        queue = scheduler._queue
        assert asyncio.all_tasks() == {asyncio.current_task()}
        workers = scheduler._workers
        held: list[Sized] = [
            scheduler._jobs,
            scheduler._hooks._waits if scheduler._hooks else (),
            scheduler._answers._notified,
            workers._workers,
            workers._leaving,
        ]
        held += [scheduler._deadlines._timers._timers, workers._timers._timers]
        held += [queue._timers._timers, queue._due]
        held += [
            scheduler._deadlines._chunks,
            scheduler._deadlines._due,
            scheduler._ending._left,
            queue._buckets._buckets,
        ]
        assert [len(holder) for holder in held] == [0] * len(held)
        assert workers._starting is None
        assert sum(second.jobs for second in scheduler._counters._seconds) == 0


async def _lived(answers: dict[str, list[object]], budget: PollBudget, steps: list[tuple[str, Any, Any]]) -> History:
    history = History(answers, budget)
    for step in steps:
        await history.step(*step)
    await history.end()
    return history


def _virtual_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    return looptime.patch_event_loop(loop, start=0, noop_cycles=0)


@settings(max_examples=150)
@given(
    answers=st.fixed_dictionaries(
        {f"job_{number}": st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=8) for number in range(4)}
    ),
    budget=st.sampled_from([PollBudget(), PollBudget(in_flight=1), PollBudget(in_flight=2, per_second=3)]),
    steps=st.lists(STEPS, max_size=25),
)
def test_any_history(answers: dict[str, list[object]], budget: PollBudget, steps: list[tuple[str, Any, Any]]) -> None:
    """In any history one poll per job is in flight, and only for a waiter; every wait ends in time; nothing leaks."""
    with asyncio.Runner(loop_factory=_virtual_loop) as runner:
        history = runner.run(_lived(answers, budget, steps))
    assert (history.get_job.doubled, history.for_nobody) == (set(), [])
    told = Counter(
        event.ref.job_id if isinstance(event, PollFailed) else event.job.id
        for event in history.events
        if isinstance(event, PollFailed | JobPolled)
    )
    assert told == Counter(job_id for _, job_id in history.get_job.asked)
    begun, over = (
        Counter(event.ref for event in history.events if isinstance(event, kind)) for kind in (WaitStarted, WaitEnded)
    )
    assert begun == over
