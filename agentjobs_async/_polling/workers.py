"""The workers that poll: each goes on with the next job as long as one is due, and there are no more than places."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Final

from agentjobs_async._polling.decision import Answer
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.reading import Read
from agentjobs_async._polling.timers import Timers
from agentjobs_async._polling.tracked import Tracked, Worker
from agentjobs_async.models import JobRef

__all__ = ["Workers"]

_TURN: Final = 0.002
_PATIENCE: Final = 1.0
_LONGEST_WHILE_OTHERS_WAIT: Final = 30.0
_OVERTAKEN: Final = 2
_SMOOTHING: Final = 0.1


class Workers:
    """Polls what the queue gives, at most `places` jobs at a time.

    Args:
        places: How many polls may be in flight.
        answered: Called with the job that was polled, the answer (or what the poll raised), and the loop time.
        hung: Called with a job whose poll hung while others waited, after it was cut, and the loop time.
        left: Called with the ref of a job whose cut poll has ended at last.
        longest: Seconds that a poll may hang while others wait, at the most, when those before it were cut.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Read,
        queue: PollQueue,
        places: int,
        *,
        answered: Callable[[Tracked, Answer | BaseException, float], None],
        hung: Callable[[Tracked, float], None],
        left: Callable[[JobRef], None],
        longest: float,
    ) -> None:
        self._loop = loop
        self._read = read
        self._queue = queue
        self._places = places
        self._answered = answered
        self._hung = hung
        self._left = left
        self._longest = max(longest, _PATIENCE)
        self._slow = 0
        self._most_slow = max(places // 2, 1)
        self._alarms = Timers(loop)
        self._workers: set[Worker] = set()
        self._leaving: dict[JobRef, asyncio.Task[None]] = {}
        self._starting: Worker | None = None
        self._answers = 0
        self._mean_latency = 0.0
        self._turn_ends = 0.0
        self._turning = False

    def in_flight(self) -> int:
        """Count the polls under way."""
        return sum(worker.tracked is not None for worker in self._workers)

    def is_leaving(self, ref: JobRef) -> bool:
        """Return whether a poll of the job that was cut has not ended yet."""
        return bool(self._leaving) and ref in self._leaving

    def dispatch(self) -> None:
        """Start a worker if something may go out and there is a place. It starts the next when it has found work."""
        if self._starting is not None and self._starting.task.done():  # it was cancelled before its first step
            self._workers.discard(self._starting)
            self._starting = None
        if self._queue.has_set_aside():
            self._alarms.set(self._cut_hung_polls, self._loop.time() + _PATIENCE)
        if not self._queue.backlog():
            return
        if len(self._workers) >= self._places:
            self._alarms.set(self._cut_hung_polls, self._loop.time() + _PATIENCE)
        elif self._starting is None:
            worker = self._starting = Worker()
            self._workers.add(worker)
            context = Context()
            # Never an eager task: it would poll before its caller is done.
            worker.task = asyncio.Task(self._work(worker, context), loop=self._loop, context=context)

    def cut(self, tracked: Tracked) -> None:
        """End the poll of a job. Its place is free at once, even when a callable swallows the cancellation."""
        worker = tracked.worker
        if worker is None:
            return
        tracked.worker = worker.tracked = None
        self._workers.discard(worker)
        self._count_slow(worker, slow=False)
        self._leaving[tracked.ref] = worker.task
        worker.task.cancel()

    def _cut_hung_polls(self) -> None:
        """Cut the polls that hang while others wait: ones overtaken by many, or that take half a minute.

        All places taken by jobs that hang would stop every other job. A server that is slow for all is left its time:
        its polls don't overtake each other. A job that is slow itself is cut later each time, until it is seen; such
        jobs hold half of the places at most, and where others of them wait, only theirs are cut.
        """
        full = len(self._workers) >= self._places and self._queue.backlog()
        if not full and not self._queue.has_set_aside():
            return
        now = self._loop.time()
        for worker in sorted(self._workers, key=lambda worker: worker.began):
            if full or worker.slow:
                self._cut_if_hung(worker, now)
        self.dispatch()

    def _cut_if_hung(self, worker: Worker, now: float) -> None:
        tracked = worker.tracked
        if tracked is None:
            return
        overtaken = self._answers - worker.answers_before >= _OVERTAKEN * self._places
        patience = max(tracked.patience, _PATIENCE if overtaken else _LONGEST_WHILE_OTHERS_WAIT)
        if now - worker.began >= patience:
            self.cut(tracked)
            tracked.in_trouble().patience = min(2 * patience, self._longest)
            self._answers += 1
            self._hung(tracked, now)

    def _count_slow(self, worker: Worker, *, slow: bool) -> None:
        """Record whether `worker` polls a slow job from here on."""
        if worker.slow is not slow:
            worker.slow = slow
            self._slow += 1 if slow else -1
            self._queue.no_slow = self._slow >= self._most_slow

    async def _work(self, worker: Worker, context: Context) -> None:  # noqa: C901, PLR0912 - hot loop: frames cost
        """Poll one after the other until nothing may go out, giving the loop back in between.

        It runs in `context`, empty at first: no poll sees the variables of a caller.
        """
        self._starting = None
        clock, queue, read, answered = self._loop.time, self._queue, self._read, self._answered
        tracked, lone = None, True
        now = clock()
        try:
            while (tracked := queue.next(now)) is not None:
                if self._leaving and tracked.ref in self._leaving:
                    continue  # its cut poll has not ended; then it comes back
                worker.take(tracked, now, self._answers)
                if tracked.trouble is not None and tracked.patience:
                    self._count_slow(worker, slow=True)
                if lone:
                    lone = False
                    self.dispatch()
                try:
                    answer: Answer | BaseException = await read(tracked.ref)
                except BaseException as error:  # a callable may raise anything; only its own job ends by it
                    if worker.tracked is not tracked or isinstance(error, GeneratorExit):
                        raise
                    answer = error
                if worker.tracked is not tracked:
                    return  # cut, and the callable swallowed it
                tracked.worker = worker.tracked = None
                self._answers += 1
                now = clock()
                if worker.slow:
                    self._count_slow(worker, slow=False)
                    if now - worker.began < _PATIENCE:
                        tracked.in_trouble().patience = 0.0
                answered(tracked, answer, now)
                if worker.task.cancelling():  # all tasks of the loop are: no new ones now; or a callable did it
                    self._alarms.set(self.dispatch, now + _PATIENCE)
                    return
                if isinstance(answer, BaseException):
                    now = await self._paused(answer, now - worker.began)
                else:
                    self._mean_latency += _SMOOTHING * (now - worker.began - self._mean_latency)
                del answer  # it may be large, and the next one may take long to come
                if now > self._turn_ends and queue.backlog():
                    now = await self._next_turn()
                if context:  # the callable left variables behind, which the next job's poll must not see
                    self._workers.discard(worker)
                    self.dispatch()
                    return
        finally:
            self._workers.discard(worker)
            self._count_slow(worker, slow=False)
            if tracked is not None and self._leaving.get(tracked.ref) is worker.task:
                del self._leaving[tracked.ref]
                self._left(tracked.ref)

    async def _paused(self, error: BaseException, took: float) -> float:
        """Keep the place for as long as a poll usually takes: one that fails at once makes nobody faster."""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            task = asyncio.current_task()
            if task is not None:
                task.add_done_callback(asyncio.Task.exception)  # else the loop complains that nobody asked for it
            raise error
        if self._mean_latency > _TURN and took < self._mean_latency:
            await asyncio.sleep(self._mean_latency - took)
        return self._loop.time()

    async def _next_turn(self) -> float:
        """Wait until the loop has served others. All workers together have one turn in each round of it."""
        while (now := self._loop.time()) > self._turn_ends:
            if not self._turning:
                self._turning = True
                self._loop.call_soon(self._begin_turn, context=Context())
            await asyncio.sleep(0)
        return now

    def _begin_turn(self) -> None:
        self._turning = False
        self._turn_ends = self._loop.time() + _TURN

    def close(self) -> set[asyncio.Task[None]]:
        """Cut all polls; give the tasks that are about to end."""
        self._alarms.cancel()
        tasks = {worker.task for worker in self._workers}
        for task in tasks:
            task.cancel()
        return tasks.union(self._leaving.values())
