"""The workers that poll: at most one for each slot; a worker polls one job after the other while any is due."""

import asyncio
from contextvars import Context
from typing import Final

from agentjobs_async._loop.wheel import Timers
from agentjobs_async._polling.answers import Answers
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.reading import Reader, as_runtime_error, without_own_frame
from agentjobs_async._polling.stats import Counters
from agentjobs_async._polling.tracked import Tracked, Worker
from agentjobs_async._polling.wait_state import Answer
from agentjobs_async.errors import TransportError
from agentjobs_async.models import JobRef

_ITERATION_SECONDS: Final = 0.002  # of polls before other tasks run: longer delays those, shorter costs more iterations
_PATIENCE_SECONDS: Final = 1.0  # for a poll that many others overtook
_MAX_PATIENCE_SECONDS: Final = 30.0  # for any poll while others wait, unless its job was slow before
_OVERTAKEN_TIMES: Final = 2  # times the number of slots: a poll is overtaken once that many others were answered
_SMOOTHING: Final = 0.1  # the share of the newest poll in the mean latency
_HANGS: Final = "no answer while many others came: cut, to make room for other jobs"


class Workers:
    """Polls the jobs that the queue returns, at most `slots` at a time.

    A slot is used by a worker, from its start until it has found no more work or its poll is cut. It is free from the
    cut on, although the task may take its time to leave; the job itself is polled again only once the task has left.

    Args:
        slots: How many polls may be in flight.
        counters: Its `polls` show how many others overtook a hanging poll.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: Reader,
        queue: PollQueue,
        slots: int,
        counters: Counters,
        answers: Answers,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._queue = queue
        queue.dispatcher = self
        self._slots = slots
        self._counters = counters
        self._answers = answers
        self._longest = max(reader.longest_poll, _PATIENCE_SECONDS)  # however often polls of a job were cut
        self._slow = 0
        self._max_slow = max(slots // 2, 1)
        self._timers = Timers(loop)
        self._workers: set[Worker] = set()
        self._leaving: dict[JobRef, asyncio.Task[None]] = {}
        self._starting: Worker | None = None
        self._mean_latency = 0.0
        self._iteration_ends = 0.0
        self._iteration_scheduled = False
        self._closed = False

    def is_leaving(self, ref: JobRef) -> bool:
        """Return whether a cut poll of the job has not ended yet."""
        return bool(self._leaving) and ref in self._leaving

    def dispatch(self) -> None:
        """Start a worker if a poll may be sent and a slot is free.

        One worker starts at a time, and the next when this one has found work: if polls end at once, one worker does
        all of them, and no other starts only to find the queue empty.
        """
        if self._starting is not None and self._starting.task.done():  # it was cancelled before its first step
            self._workers.discard(self._starting)
            self._starting = None
        if self._queue.has_set_aside():
            self._timers.set(self._cut_hung_polls, self._loop.time() + _PATIENCE_SECONDS)
        if self._starting is not None or not self._queue.has_backlog():
            return  # a starting worker calls this once it has found work
        if len(self._workers) >= self._slots:
            self._timers.set(self._cut_hung_polls, self._loop.time() + _PATIENCE_SECONDS)
        else:
            worker = self._starting = Worker()
            self._workers.add(worker)
            context = Context()
            # Never an eager task: it would poll before its caller is done.
            worker.task = asyncio.Task(self._work(worker, context), loop=self._loop, context=context)

    def cut(self, tracked: Tracked) -> None:
        """End the poll of a job. Its slot is free at once, even when a callable swallows the cancellation."""
        worker = tracked.worker
        if worker is None:
            return
        tracked.worker = worker.tracked = None
        self._workers.discard(worker)
        self._count_slow(worker, slow=False)
        worker.cut_ref = tracked.ref
        self._leaving[tracked.ref] = worker.task
        worker.task.cancel()

    def _cut_hung_polls(self) -> None:
        """Cut the polls that hang while others wait: those that many others overtook, or that take half a minute.

        Jobs whose polls hang would otherwise take all slots and stop every other job. Where the server is slow for all
        jobs, polls don't overtake each other, and none is cut early. The polls of a job that is slow itself are given
        more time after each cut, until one is answered; such jobs use half of the slots at most, and when only others
        of them wait, only their polls are cut.
        """
        full = len(self._workers) >= self._slots and self._queue.has_backlog()
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
        overtaken = self._counters.polls - worker.polls_before >= _OVERTAKEN_TIMES * self._slots
        patience = max(tracked.patience_seconds, _PATIENCE_SECONDS if overtaken else _MAX_PATIENCE_SECONDS)
        if now - worker.began >= patience:
            self.cut(tracked)
            tracked.patience_seconds = min(2 * patience, self._longest)
            self._answers.act_on(tracked, TransportError(_HANGS), now, worker.began)

    def _count_slow(self, worker: Worker, *, slow: bool) -> None:
        """Record whether `worker` polls a slow job from here on."""
        if worker.slow is not slow:
            worker.slow = slow
            self._slow += 1 if slow else -1
            self._queue.no_slow = self._slow >= self._max_slow

    async def _work(self, worker: Worker, context: Context) -> None:
        """Poll until nothing may be sent, and free the slot. It runs in `context`, without any caller's variables."""
        self._starting = None
        try:
            await self._poll_due(worker, context)
        finally:
            self._workers.discard(worker)
            self._count_slow(worker, slow=False)
            if worker.cut_ref is not None:
                del self._leaving[worker.cut_ref]
                if not self._closed:
                    self._queue.enqueue_idle(worker.cut_ref)  # a new wait for it may have begun meanwhile
        if context and not worker.task.cancelling():  # it left other jobs to a worker with an empty context
            self.dispatch()

    async def _poll_due(self, worker: Worker, context: Context) -> None:  # noqa: C901 - hot loop: calls cost
        """Poll one due job after the other, giving the loop back in between.

        `worker.tracked is not tracked` after the await means: cut; slot and job may belong to another worker by now.
        """
        queue, counters, clock, answers = self._queue, self._counters, self._loop.time, self._answers
        is_first, now = True, clock()
        # Variables that a callable has left behind are not for the next job's poll: a worker ends by them.
        while not context and (tracked := queue.next(now)) is not None:
            if self._leaving and tracked.ref in self._leaving:
                continue  # it is queued again when its cut poll has ended
            worker.tracked, worker.began, worker.polls_before = tracked, now, counters.polls
            tracked.worker, tracked.polls = worker, tracked.polls + 1
            if tracked.patience_seconds:
                self._count_slow(worker, slow=True)
            if is_first:
                is_first = False
                self.dispatch()  # this worker has found work, so that the next one may start
            try:
                answer: Answer | BaseException = await self._reader.answer(tracked.ref, tracked.label)
            except BaseException as error:  # a callable may raise anything; only its own job ends by it
                if self._ends_worker(worker, error, cut=worker.tracked is not tracked):
                    raise
                # A GeneratorExit would close the coroutines that await its future.
                answer = as_runtime_error(without_own_frame(error), GeneratorExit, "get_job raised GeneratorExit")
            if worker.tracked is not tracked:
                return  # cut, and the callable swallowed the cancellation, or raised an error of its own in its place
            tracked.worker = worker.tracked = None
            now = clock()
            if worker.slow:
                self._end_slow(worker, tracked, now)
            answers.act_on(tracked, answer, now, worker.began)
            if worker.task.cancelling():  # the loop ends, or a callable cancelled its own task: no new poll here
                self._timers.set(self.dispatch, now + _PATIENCE_SECONDS)
                return
            if isinstance(answer, BaseException):
                now = await self._pause_after(answer, now - worker.began)
            else:
                self._mean_latency += _SMOOTHING * (now - worker.began - self._mean_latency)
            del answer  # it may be large, and the next one may take long to come
            if now > self._iteration_ends and queue.has_backlog():
                now = await self._next_iteration()

    def _ends_worker(self, worker: Worker, error: BaseException, *, cut: bool) -> bool:
        """Return whether a worker ends with what its poll raised: the cancellation by a cut, or its own disposal."""
        is_disposed = isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not worker.task
        return is_disposed or (cut and not isinstance(error, Exception))

    def _end_slow(self, worker: Worker, tracked: Tracked, now: float) -> None:
        """Record that the poll of a slow job was answered; a quick answer shows that it is slow no longer."""
        self._count_slow(worker, slow=False)
        if now - worker.began < _PATIENCE_SECONDS:
            tracked.patience_seconds = 0.0

    async def _pause_after(self, error: BaseException, took: float) -> float:
        """Keep the slot for as long as a poll usually takes: polls that fail at once must not make the client faster.

        Returns:
            The loop time.
        """
        if isinstance(error, KeyboardInterrupt | SystemExit):
            task = asyncio.current_task()
            if task is not None:
                task.add_done_callback(asyncio.Task.exception)  # else asyncio logs that it was never retrieved
            raise error
        if self._mean_latency > _ITERATION_SECONDS and took < self._mean_latency:
            await asyncio.sleep(self._mean_latency - took)
        return self._loop.time()

    async def _next_iteration(self) -> float:
        """Wait until other tasks have run, and return the loop time. All workers share the time of one iteration."""
        while (now := self._loop.time()) > self._iteration_ends:
            if not self._iteration_scheduled:
                self._iteration_scheduled = True
                self._loop.call_soon(self._begin_iteration, context=Context())
            await asyncio.sleep(0)
        return now

    def _begin_iteration(self) -> None:
        self._iteration_scheduled = False
        self._iteration_ends = self._loop.time() + _ITERATION_SECONDS

    def close(self) -> set[asyncio.Task[None]]:
        """Cut all polls; return the tasks that are about to end."""
        self._closed = True
        self._timers.cancel()
        tasks = {worker.task for worker in self._workers}
        for task in tasks:
            task.cancel()
        return tasks.union(self._leaving.values())
