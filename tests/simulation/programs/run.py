"""What all work of a process shares: its sessions, its faults, and what is noted of its calls."""

import asyncio
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeVar

from tenacity import wait_fixed

from agentjobs_async import (
    AgentJobsError,
    AgentJobsSession,
    HttpTimeouts,
    JobTracker,
    NotFoundError,
    NotSentError,
    PollBudget,
    PollPolicy,
    SessionClosedError,
    wait_learned,
)
from agentjobs_async.batch import State
from agentjobs_async.telemetry import CreateFailed, JobPolled, PollFailed, WaitEnded, WaitStarted
from tests.simulation.ledger import KEY, Call, Ledger, Program
from tests.simulation.service import Service
from tests.simulation.world import Process, World

CALL: ContextVar[int | None] = ContextVar("whose context it is", default=None)
T = TypeVar("T")
ENDS: Final = frozenset(State) - {State.PLANNED, State.SENDING, State.ACTIVE}


class Run:
    """A process from one start to its end, or to a kill."""

    def __init__(
        self, world: World, service: Service, ledger: Ledger, program: Program, folder: Path, process: Process
    ) -> None:
        self.world, self.service, self.ledger, self.program = world, service, ledger, program
        self.folder, self.process = folder, process
        self._events: Counter[str] = Counter()

    def check_events(self) -> None:
        """Report waits whose hooks were told of a begin and no end, or the other way round."""
        if self._events["started"] != self._events["ended"]:
            self.world.violate(f"Counters: {self._events} waits were told to hooks")

    def check_stats(self, session: AgentJobsSession | JobTracker) -> None:
        """Report stats that do not return to 0."""
        stats = session.stats()
        if stats.jobs or stats.in_flight or stats.due:
            self.world.violate(f"Counters: stats do not return to 0: {stats}")

    def policy(self) -> PollPolicy:
        """Return a policy as the program says."""
        interval = self.program.interval
        if interval < 0:
            return PollPolicy(wait=wait_learned())
        return PollPolicy(wait=wait_fixed(interval)) if interval else PollPolicy()

    @asynccontextmanager
    async def session(self, sender: str) -> AsyncIterator[AgentJobsSession]:
        """Open a session that the service knows as `sender`, and check that it is closed for good."""
        program = self.program
        session = AgentJobsSession(
            "http://service.test",
            KEY,
            project_id="docs",
            allow_insecure=True,
            user_agent=sender,
            policy=self.policy(),
            budget=PollBudget(in_flight=program.in_flight, per_second=program.per_second),
            timeouts=HttpTimeouts(connect=5.0, request=20.0),
            hooks=[self._hook],
        )
        async with session:
            yield session
        await session.aclose()
        with suppress(SessionClosedError):
            await session.create_job("too late")
            self.world.violate("P17: a closed session creates jobs")

    def _hook(self, event: object) -> None:
        if isinstance(event, JobPolled | PollFailed) and CALL.get() is not None:
            self.world.violate(f"P19: {type(event).__name__} runs in a caller's context")
        if isinstance(event, WaitStarted):
            self._events["started"] += 1
        elif isinstance(event, WaitEnded):
            self._events["ended"] += 1
        elif isinstance(event, PollFailed):
            cut = isinstance(event.error, asyncio.CancelledError) or "until the wait ended" in str(event.error)
            self.ledger.poll_failures += not (cut or isinstance(event.error, NotFoundError))
            self.ledger.not_sent += isinstance(event.error, NotSentError)
        elif isinstance(event, CreateFailed) and event.label is not None:
            for create in self.ledger.creates:
                if create.prompt == event.label:
                    create.hook_outcome = event.outcome
        self.raise_if_due()

    def raise_if_due(self) -> None:
        """Raise, if a callback is to raise now."""
        if any(fault.what == "raise" for fault in self.world.next("call")):
            raise ValueError("a callback of the user's raises")

    async def misbehave_if_due(self) -> None:
        """Raise, hang or swallow a cancellation, if a callback or a source is to do so now."""
        for fault in self.world.next("call"):
            if fault.what == "raise":
                raise ValueError("a callback of the user's raises")
            if fault.what == "hang":
                await asyncio.sleep(fault.amount)
            elif fault.what == "swallow":
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(fault.amount)
                await asyncio.sleep(1.0)

    def check_error(self, error: BaseException) -> None:
        """Report an error whose text or fields show the key, or control characters."""
        text = "".join(traceback.format_exception(error)) + repr((error.args, vars(error)))
        if KEY in text:
            self.world.violate(f"P10: the key is in {error!r}")
        if not str(error).isprintable():
            self.world.violate(f"P16: there are control characters in {error!r}")

    async def cancellable(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what `work` returns, or `None` when a fault cancels it; note when it was cancelled and had left."""
        task = asyncio.get_running_loop().create_task(work)
        self.process.cancellable[task] = None
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                return task.result()
            self.ledger.cancelled.append((self.process.cancelled_at[task], self.world.now))
            return None
        finally:
            self.process.cancellable.pop(task, None)
            task.cancel()

    async def noted_run(self, sender: str, work: Coroutine[Any, Any, bool]) -> bool | None:
        """Return what a run of a batch or of durable jobs returns; note when it begins and ends."""
        self.ledger.runs.setdefault(sender, []).append(self.world.now)
        try:
            return await self.cancellable(work)
        finally:
            self.ledger.run_ends.setdefault(sender, []).append(self.world.now)

    @contextmanager
    def noted(self, call: Call) -> Iterator[None]:
        """Note with which error a call ends, and when."""
        try:
            yield
        except AgentJobsError as error:
            call.error = error
            self.check_error(error)
        except asyncio.CancelledError as error:
            call.error = error
            raise
        finally:
            call.ended = self.world.now


async def together(works: list[Any]) -> None:
    """Run everything at once; the first error ends the others, and is raised itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
