"""What all work of a process shares: its sessions, its faults, and what is noted of its calls."""

import asyncio
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar

from tenacity import wait_fixed

from agentjobs_async import (
    AgentJobsError,
    AgentJobsSession,
    AuthError,
    History,
    HttpTimeouts,
    JobTracker,
    PollBudget,
    PollPolicy,
    SessionClosedError,
)
from agentjobs_async.batch import JournalRow, State
from tests.simulation.activities import Program
from tests.simulation.agreement import SECRETS, dialect_of
from tests.simulation.ledger import Call, Ledger
from tests.simulation.processes import Process
from tests.simulation.programs.keys import key_of
from tests.simulation.programs.listening import Listener, learning_wait
from tests.simulation.programs.sessions import NotedSession
from tests.simulation.service import Service
from tests.simulation.tries import named_tries
from tests.simulation.world import World

T = TypeVar("T")
ENDS: Final = frozenset(State) - {State.PLANNED, State.SENDING, State.ACTIVE}
FINAL: Final = ENDS - {State.UNKNOWN}


class Run:
    """A process from one start to its end, or to a kill."""

    def __init__(
        self, world: World, service: Service, ledger: Ledger, program: Program, folder: Path, process: Process
    ) -> None:
        self.world, self.service, self.ledger, self.program = world, service, ledger, program
        self.folder, self.process = folder, process
        self.events: Counter[str] = Counter()
        self.history = History()

    def check_events(self) -> None:
        """Report waits whose hooks were told of a begin and no end, or the other way round."""
        if self.events["started"] != self.events["ended"]:
            self.world.violate(f"Counters: {self.events} waits were told to hooks")

    def check_stats(self, session: AgentJobsSession | JobTracker) -> None:
        """Report stats that do not return to 0."""
        stats = session.stats()
        if stats.jobs or stats.in_flight or stats.due:
            self.world.violate(f"Counters: stats do not return to 0: {stats}")

    def policy(self, sender: str) -> PollPolicy:
        """Return a policy for the session `sender`, as the program says."""
        interval = self.program.interval
        if interval < 0:
            return PollPolicy(wait=learning_wait(self, sender, self.history))
        return PollPolicy(wait=wait_fixed(interval)) if interval else PollPolicy()

    def named(self, project: str | None, sender: str) -> str | None:
        """Return the project that an item names in the session `sender`, so that it is the same after each start."""
        return self.program.sessions.named(project, int(sender.rpartition(".")[2]), self.process.starts)

    @asynccontextmanager
    async def session(self, sender: str) -> AsyncIterator[NotedSession]:
        """Open a session that the service knows as `sender`, and check that it is closed for good."""
        program, starts, number = self.program, self.process.starts, int(sender.rpartition(".")[2])
        agreement, keys = self.service.agreement, self.service.keys
        keys.first[sender] = program.sessions.key(number, starts)
        session = NotedSession(
            "http://service.test",
            key_of(self.world, keys, sender, agreement.key),
            dialect=dialect_of(agreement),
            headers=agreement.headers,
            project_id=program.sessions.home(number, starts),
            allow_insecure=True,
            user_agent=sender,
            policy=self.policy(sender),
            budget=PollBudget(in_flight=program.in_flight, per_second=program.per_second),
            timeouts=HttpTimeouts(connect=5.0, request=20.0),
            hooks=Listener(self, sender).hooks(),
        )
        session.note_in(self.ledger, self.world, sender)
        async with session:
            yield session
        await session.aclose()
        with suppress(SessionClosedError):
            await session.create_job("too late")
            self.world.violate("P17: a closed session creates jobs")

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

    def check_error(self, error: BaseException, *, is_told: bool = True) -> None:
        """Report an error that shows a secret, or control characters; note one of a 401 that a caller is told."""
        if is_told and isinstance(error, AuthError) and error.status == 401:
            self.ledger.refusals.append((self.world.now, str(error)))
        text = "".join(traceback.format_exception(error)) + repr((error.args, vars(error)))
        if any(secret in text for secret in SECRETS):
            self.world.violate(f"P10: a secret is in {error!r}")
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

    def check_rows(self, rows: list[JournalRow], begun: float) -> None:
        """Report rows that had ended, or were of another project, and have changed since; read from `begun` on."""
        for name_of_try, row in named_tries(rows):
            planned = self.ledger.projects.setdefault((self.program.name, row.number), row.project_id)
            if planned != row.project_id:
                self.world.violate(f"Places: {row.key} was planned for {planned}, and is of {row.project_id}")
            name, now = (self.program.name, *name_of_try), (row.state, row.error)
            before, noted = self.ledger.ends.get(name, (now, -1.0))
            if begun < noted:
                continue  # read before
            if before != now and before[0] in FINAL:
                self.world.violate(f"Rows: {row.key} had ended as {before}, and is {now}")
            self.ledger.ends[name] = now, self.world.now

    @contextmanager
    def noted_leaving(self, sender: str) -> Iterator[None]:
        """Note when the block of a run begins to be left: nothing new is begun from then on."""
        try:
            yield
        finally:
            self.ledger.leavings.setdefault(sender, []).append((self.world.now, self.world.events))

    def new_call(self, sender: str, kind: type[Call] = Call) -> Call:
        """Return a call that begins now, in the ledger; it has no timeout of its own."""
        call = kind(self.process.name, sender, self.world.now, inf)
        self.ledger.calls.append(call)
        return call

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
