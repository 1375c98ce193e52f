"""The workers that poll: each goes on with the next job as long as one is due, and there are no more than places."""

import asyncio
from collections.abc import Callable
from typing import Final

from agentjobs_async._queue import Alarms, PollQueue
from agentjobs_async._tracked import Tracked, Worker
from agentjobs_async.decision import Answer
from agentjobs_async.models import JobRef
from agentjobs_async.waiting import Read

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
    ) -> None:
        self._loop = loop
        self._read = read
        self._queue = queue
        self._places = places
        self._answered = answered
        self._hung = hung
        self._left = left
        self._alarms = Alarms(loop)
        self._workers: set[Worker] = set()
        self._leaving: dict[JobRef, asyncio.Task[None]] = {}
        self._starting: Worker | None = None
        self._answers = 0
        self._typical = 0.0
        self._turn_ends = 0.0
        self._turning = False

    def in_flight(self) -> int:
        """Count the polls under way."""
        return sum(worker.tracked is not None for worker in self._workers)

    def is_leaving(self, ref: JobRef) -> bool:
        """Tell whether a poll of the job that was cut has not ended yet."""
        return bool(self._leaving) and ref in self._leaving

    def pump(self) -> None:
        """Start a worker if something may go out and there is a place. It starts the next when it has found work."""
        if self._starting is not None and self._starting.task.done():  # it was cancelled before its first step
            self._workers.discard(self._starting)
            self._starting = None
        if not self._queue.backlog():
            return
        if len(self._workers) >= self._places:
            self._alarms.set(self._relieve, self._loop.time() + _PATIENCE)
        elif self._starting is None:
            worker = self._starting = Worker()
            self._workers.add(worker)
            # Never an eager task: it would poll before its caller is done.
            worker.task = asyncio.Task(self._work(worker), loop=self._loop)

    def cut(self, tracked: Tracked) -> None:
        """End the poll of a job. Its place is free at once, even when a callable swallows the cancellation."""
        worker = tracked.worker
        if worker is None:
            return
        tracked.worker = worker.tracked = None
        self._workers.discard(worker)
        self._leaving[tracked.ref] = worker.task
        worker.task.cancel()

    def _relieve(self) -> None:
        """Cut the polls that hang while others wait: ones overtaken by many, or that take half a minute.

        All places taken by jobs that hang would stop every other job. A server that is slow for all is left its time:
        its polls don't overtake each other.
        """
        if not self._queue.backlog() or len(self._workers) < self._places:
            return
        now = self._loop.time()
        for worker in sorted(self._workers, key=lambda worker: worker.began):
            tracked = worker.tracked
            overtaken = self._answers - worker.answers_before >= _OVERTAKEN * self._places
            patience = _PATIENCE if overtaken else _LONGEST_WHILE_OTHERS_WAIT
            if tracked is not None and now - worker.began >= patience:
                self.cut(tracked)
                self._answers += 1
                self._hung(tracked, now)
        self.pump()

    async def _work(self, worker: Worker) -> None:  # noqa: C901 - the hot loop: another frame would cost at each poll
        """Poll one after the other until nothing may go out, giving the loop back in between."""
        self._starting = None
        clock, queue, read, answered = self._loop.time, self._queue, self._read, self._answered
        tracked, lone = None, True
        now = clock()
        try:
            while (tracked := queue.next(now)) is not None:
                if self._leaving and tracked.ref in self._leaving:
                    continue  # its cut poll has not ended; then it comes back
                worker.take(tracked, now, self._answers)
                if lone:
                    lone = False
                    self.pump()
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
                answered(tracked, answer, now)
                if worker.task.cancelling():  # all tasks of the loop are: no new ones now; or a callable did it
                    self._alarms.set(self.pump, now + _PATIENCE)
                    return
                if isinstance(answer, BaseException):
                    now = await self._paused(answer, now - worker.began)
                else:
                    self._typical += _SMOOTHING * (now - worker.began - self._typical)
                if now > self._turn_ends and queue.backlog():
                    now = await self._next_turn()
        finally:
            self._workers.discard(worker)
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
        if self._typical > _TURN and took < self._typical:
            await asyncio.sleep(self._typical - took)
        return self._loop.time()

    async def _next_turn(self) -> float:
        """Give the loop back until others had their turn. All workers together have one turn in each round of it."""
        while (now := self._loop.time()) > self._turn_ends:
            if not self._turning:
                self._turning = True
                self._loop.call_soon(self._begin_turn)
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
