"""A service in memory: a get-job callable whose answers are scripted, and that remembers how it was asked."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pytest
import tenacity
from looptime import LoopTimeEventLoop

from agentjobs_async import AgentJob, AuthError, JobRef, JobTracker, NotFoundError, PollPolicy

REF = JobRef("docs", "job_1")

in_memory: Final = pytest.mark.looptime(noop_cycles=0)
"""Marks tests without a socket: whenever nothing is ready, their clock goes on at once, without a look for answers."""


def clock() -> float:
    return asyncio.get_running_loop().time()


def every(seconds: float, **settings: Any) -> PollPolicy:
    return PollPolicy(wait=tenacity.wait_fixed(seconds), **settings)


def refs(count: int) -> list[JobRef]:
    return [JobRef("docs", f"job_{number}") for number in range(count)]


def gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def peak(times: Sequence[float], span: float = 1.0) -> int:
    """Return the most of sorted `times` that lie within any `span`."""
    first, most = 0, 0
    for last, time in enumerate(times):
        while time - times[first] >= span:
            first += 1
        most = max(most, last - first + 1)
    return most


def kinds(events: Sequence[object]) -> list[str]:
    """Return the names of the classes of events."""
    return [type(event).__name__ for event in events]


def stand_still(seconds: float) -> None:
    """Advance the loop's clock without the loop, as when something blocks it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LoopTimeEventLoop)
    loop.setup_looptime(start=loop.time() + seconds)


class Polled:
    """A get-job callable that gives one step after the other, the last for ever, each job on its own.

    A step is a status, a job or any other value to return, an exception that it raises, or an async function of the
    ref that gives one of these.

    Args:
        steps: Those of every job that has none of its own.
        jobs: Those of single jobs, by their ids.
        latency: Seconds that each poll takes.

    Attributes:
        asked: When each poll began, in seconds from the making, and the id of its job.
        most: How many polls were in flight at once.
        doubled: The jobs of which two polls were in flight at once.
    """

    def __init__(
        self, *steps: object, jobs: Mapping[str, Sequence[object]] | None = None, latency: float = 0.0
    ) -> None:
        self.steps: Sequence[object] = steps or ("active",)
        self.jobs = dict(jobs or {})
        self.latency = latency
        self._made = clock()
        self._polls = Counter[str]()
        self._flying = Counter[str]()
        self.asked: list[tuple[float, str]] = []
        self.most = 0
        self.doubled: set[str] = set()

    async def __call__(self, ref: JobRef) -> Any:
        steps = self.jobs.get(ref.job_id, self.steps)
        self.asked.append((round(clock() - self._made, 3), ref.job_id))
        step = steps[min(self._polls[ref.job_id], len(steps) - 1)]
        self._polls[ref.job_id] += 1
        if self._flying[ref.job_id]:
            self.doubled.add(ref.job_id)
        self._flying[ref.job_id] += 1
        self.most = max(self.most, self._flying.total())
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            return await _given(step, ref)
        finally:
            self._flying[ref.job_id] -= 1

    @property
    def times(self) -> list[float]:
        """When polls began, whatever the job."""
        return [at for at, _ in self.asked]

    def at(self, job_id: str = "job_1") -> list[float]:
        """Return when the polls of one job began."""
        return [at for at, asked in self.asked if asked == job_id]

    def within(self, start: float, end: float) -> list[float]:
        """Return when polls began, of those in a span."""
        return [at for at in self.times if start <= at < end]


async def _given(step: Any, ref: JobRef) -> object:
    if isinstance(step, BaseException):
        raise step.with_traceback(None)  # else that of an error raised often grows without end
    if callable(step):
        return await _given(await step(ref), ref)
    return AgentJob(ref.job_id, ref.project_id, step) if isinstance(step, str) else step


ACTIVE: Final = AgentJob("job_1", "docs", "active")
DONE: Final = AgentJob("job_1", "docs", "completed")


def changed(model: str) -> AgentJob:
    return AgentJob("job_1", "docs", "active", model=model)


def living(**seconds: float) -> Polled:
    """Return a service whose jobs end at these times."""

    async def state(ref: JobRef) -> str:
        return "completed" if clock() >= seconds[ref.job_id] else "active"

    return Polled(state)


def assert_nothing_left(tracker: JobTracker) -> None:
    stats = tracker.stats()
    assert (stats.jobs, stats.due, stats.in_flight) == (0, 0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def let_go(iterations: int = 5) -> None:
    """Run other tasks for some iterations of the loop: what was cancelled leaves."""
    for _ in range(iterations):
        await asyncio.sleep(0)


async def ended(*waits: asyncio.Future[AgentJob]) -> list[Any]:
    """Wait until these have ended, and return the job or the error of each."""
    return await asyncio.gather(*waits, return_exceptions=True)


def takes(seconds: float, answer: object = "active") -> Callable[[JobRef], Awaitable[object]]:
    """Return a step that gives a status, or raises an error, after so many seconds."""

    async def step(_ref: JobRef) -> object:
        await asyncio.sleep(seconds)
        return answer

    return step


async def cancelled(waits: Sequence[asyncio.Future[AgentJob]]) -> None:
    """Cancel waits, and let them leave."""
    for wait in waits:
        wait.cancel()
    await ended(*waits)


async def never(_ref: JobRef) -> Any:
    return await asyncio.Event().wait()


async def swallows(_ref: JobRef) -> Any:
    """Take 100 s, however often it is cancelled."""
    began = clock()
    while (left := began + 100 - clock()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return "completed"


async def missing(_ref: JobRef) -> object:
    raise NotFoundError(404, None, None, "no such job")


async def forbidden(_ref: JobRef) -> object:
    raise AuthError(401, None, None, "no")


def response(kind: Any, status: int, seconds: float | None = None) -> Any:
    """Return the error of a response, with a Retry-After of `seconds`."""
    return kind(status, None, seconds, "no")
