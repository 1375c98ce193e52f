"""The polls in flight: at most one for each slot, each a task of its own that ends with its answer."""

import asyncio
from contextvars import Context
from functools import partial
from typing import Final, Protocol

from attrs import define

from agentjobs_async._loop.wheel import Timers
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.reading import Reader, as_runtime_error, without_own_frame
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async._polling.wait_state import Answer
from agentjobs_async.errors import TransportError
from agentjobs_async.models import JobRef

_PATIENCE_SECONDS: Final = 1.0  # for a poll that many others overtook
_MAX_PATIENCE_SECONDS: Final = 30.0  # for any poll while others wait, unless its job was slow before
_OVERTAKEN_TIMES: Final = 2  # times the number of slots: a poll is overtaken once that many others have ended
_AFTER_CANCELLATION_SECONDS: Final = 1.0  # until the next poll starts: a loop that ends cancels all tasks once
_SMOOTHING: Final = 0.1  # the share of the newest poll in the mean latency
_LEAST_PAUSE_SECONDS: Final = 0.002  # of a slot: a timer for less costs more than it holds back
_HANGS: Final = "no answer for long while other jobs waited: cut, to make room for them"


class OnAnswers(Protocol):
    """What is done with an answer."""

    def on_answer(self, job: Tracked, answer: Answer | BaseException, began: float, now: float) -> None:
        """Act on the answer that came `now` to a poll that `began` at that loop time: put the next poll, or end."""


@define(eq=False)
class _Flight:
    """One poll in flight.

    Attributes:
        job: The job.
        task: The task in which it runs.
        began: Loop time at which it began.
        ended_before: How many polls of all jobs had ended by then.
    """

    job: Tracked
    task: asyncio.Task[Answer]
    began: float
    ended_before: int


class Workers:
    """Polls the jobs that the queue gives, at most `slots` at a time.

    A slot is used from the start of a poll until the poll has ended or is cut; where it fails at once, for as long as
    the mean of the others. After a cut the slot is free, although the task may take its time to leave; the job itself
    is polled again only once the task has left.

    Args:
        slots: How many polls may be in flight.
        parent: Gets the answers.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, reader: Reader, queue: PollQueue, slots: int, parent: OnAnswers
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._queue = queue
        self._slots = slots
        self._parent = parent
        self._longest = max(reader.longest_poll, _PATIENCE_SECONDS)  # however often polls of a job were cut
        self._timers = Timers(loop)
        self._used = 0  # slots: by what is in flight, and by what failed at once and keeps its slot for a while
        self._flights: dict[Tracked, _Flight] = {}
        self._leaving: dict[JobRef, _Flight] = {}
        """The flights that were cut, and have not left yet."""
        self._blocked: dict[JobRef, Tracked] = {}
        """The jobs that are to be polled once an earlier poll of theirs has left."""
        self._ended = 0
        self._latencies = 0  # that were counted
        self._mean_latency = 0.0
        self._is_woken = self._closed = False

    def wake(self) -> None:
        """Look for polls to start, once what is ready in the loop has run: other answers, and deadlines, come first."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._fill, context=Context())  # an empty one: a poll belongs to no caller

    def _fill(self) -> None:
        """Start polls while a slot is free and the queue has a job that may be polled."""
        self._is_woken = False
        if self._closed:
            return
        now = self._loop.time()
        while self._used < self._slots and (job := self._queue.next(now)) is not None:
            if self._leaving and job.ref in self._leaving:
                self._queue.block(job)
                self._blocked[job.ref] = job
            else:
                self._start(job, now)
        self._set_timers(now)

    def _set_timers(self, now: float) -> None:
        """Set the timers for the next poll, or where it has no slot, for the next look at polls that hang."""
        wakes_at = self._queue.wakes_at(now)
        if wakes_at > now:
            self._timers.set(self.wake, wakes_at)
        if wakes_at <= now or self._queue.has_slow:  # a job may be polled, and no slot is free for it
            self._timers.set(self._make_room, now + _PATIENCE_SECONDS)

    def _start(self, job: Tracked, now: float) -> None:
        job.begin_poll()
        task = asyncio.Task(self._reader.answer(job.ref, job.label), loop=self._loop)
        flight = self._flights[job] = _Flight(job, task, now, self._ended)
        self._used += 1
        task.add_done_callback(partial(self._on_done, flight))

    def _on_done(self, flight: _Flight, task: asyncio.Task[Answer]) -> None:
        """Pass an answer on, unless its poll was cut, and start the next polls."""
        answer = _answer_of(task)  # first: asyncio logs an error that nobody has asked for
        if self._closed:
            return
        if self._leaving and self._leaving.get(flight.job.ref) is flight:
            self._on_left(flight.job.ref)  # an answer that came in spite of the cut is nobody's
            self.wake()
        elif task.cancelling():  # the loop ends, or a callable cancelled its own task: no new poll at once
            self._timers.set(self.wake, self._loop.time() + _AFTER_CANCELLATION_SECONDS)
            self._on_answer(flight, answer)
        else:
            self.wake()  # first: `_on_answer` may raise what ends the program
            self._on_answer(flight, answer)

    def _on_answer(self, flight: _Flight, answer: Answer | BaseException) -> None:
        job, now = flight.job, self._loop.time()
        del self._flights[job]
        self._ended += 1
        took = now - flight.began
        if job.is_slow and took < _PATIENCE_SECONDS:
            job.be_patient(0.0)
        if not isinstance(answer, BaseException):
            self._count_latency(took)
            self._used -= 1
        elif self._mean_latency - took < _LEAST_PAUSE_SECONDS:
            self._used -= 1
        else:  # it keeps its slot for as long as others do: polls that fail at once must not make the client faster
            self._loop.call_later(self._mean_latency - took, self._on_free, context=Context())
        self._parent.on_answer(job, answer, flight.began, now)

    def _count_latency(self, seconds: float) -> None:
        if seconds > self._longest:
            return  # the loop stood still meanwhile
        self._latencies += 1
        self._mean_latency += max(_SMOOTHING, 1 / self._latencies) * (seconds - self._mean_latency)

    def _on_free(self) -> None:
        self._used -= 1
        self.wake()

    def _on_left(self, ref: JobRef) -> None:
        """Poll a job again whose earlier poll was cut, if a wait for it has begun meanwhile."""
        del self._leaving[ref]
        job = self._blocked.pop(ref, None)
        if job is not None:
            now = self._loop.time()
            self._queue.put(job, now, now)

    def began(self, job: Tracked) -> float | None:
        """Return the loop time at which the poll of a job began that is in flight; `None` without one."""
        flight = self._flights.get(job)
        return None if flight is None else flight.began

    def cut(self, job: Tracked) -> None:
        """End the poll of a job. Its slot is free at once, even when a callable swallows the cancellation.

        Nobody is called. What is left is the task: its answer is dropped, and only once it has ended is the job polled
        again. Without a poll in flight there is nothing to end; a job that waits for such a task stops waiting.
        """
        self._blocked.pop(job.ref, None)
        flight = self._flights.pop(job, None)  # none when a hook calls this while it is told of the poll's end
        if flight is not None:
            self._used -= 1
            self._leaving[job.ref] = flight
            flight.task.cancel()

    def _make_room(self) -> None:
        """Cut the polls that hang while others wait: those that many others overtook, or that took half a minute.

        Jobs whose polls hang would otherwise take all slots and stop every other job. Where the server is slow for all
        jobs, polls don't overtake each other, and none is cut early. The polls of a job that is slow itself are given
        more time after each cut, until one is answered; when only slow jobs wait, only polls of slow jobs are cut.
        """
        self.wake()  # first: what ends the program comes out of the answers below
        now = self._loop.time()
        is_full = self._used >= self._slots and self._queue.wakes_at(now) <= now
        if is_full or self._queue.has_slow:
            for flight in sorted(self._flights.values(), key=lambda flight: flight.began):
                if flight.job not in self._flights:
                    continue  # a hook that heard of a cut before this one has ended the last wait for the job
                if (is_full or flight.job.is_slow) and now - flight.began >= self._patience(flight):
                    self._give_up(flight, now)

    def _patience(self, flight: _Flight) -> float:
        """Return the seconds that a poll may take while others wait for its slot."""
        is_overtaken = self._ended - flight.ended_before >= _OVERTAKEN_TIMES * self._slots
        return max(flight.job.patience, _PATIENCE_SECONDS if is_overtaken else _MAX_PATIENCE_SECONDS)

    def _give_up(self, flight: _Flight, now: float) -> None:
        job, patience = flight.job, self._patience(flight)
        self.cut(job)
        self._ended += 1
        job.be_patient(min(2 * patience, self._longest))
        self._parent.on_answer(job, TransportError(_HANGS), flight.began, now)

    def close(self) -> set[asyncio.Task[Answer]]:
        """Cut all polls; return the tasks that are about to end."""
        self._closed = True
        self._timers.cancel()
        tasks = {flight.task for flight in (*self._flights.values(), *self._leaving.values())}
        for task in tasks:
            task.cancel()
        return tasks


def _answer_of(task: asyncio.Task[Answer]) -> Answer | BaseException:
    """Return the answer of a poll that is done; a callable may raise anything, and only its own job ends by it."""
    try:
        return task.result()
    except BaseException as error:  # noqa: BLE001 - it may be anything
        # A GeneratorExit would close the coroutines that await its future.
        return as_runtime_error(without_own_frame(error), GeneratorExit, "get_job raised GeneratorExit")
