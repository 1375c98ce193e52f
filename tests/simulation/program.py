"""What programs do in a world: over the public face alone, as their seed says, and what they are told."""

import asyncio
import random
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeVar

from tenacity import wait_fixed

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    AuthError,
    CreateOutcomeUnknownError,
    HttpTimeouts,
    JobRef,
    JobTracker,
    JournalError,
    NotFoundError,
    NotSentError,
    PollBudget,
    PollPolicy,
    SessionClosedError,
    WaitTimeoutError,
    wait_for_job,
    wait_learned,
)
from agentjobs_async.batch import BatchItem, BatchResult, Journal, Rate, State, Where, run_batch
from agentjobs_async.durable import DurableJobs
from agentjobs_async.telemetry import CreateFailed, JobPolled, PollFailed, WaitEnded, WaitStarted
from tests.simulation.ledger import KEY, PROJECTS, Batch, Call, Calls, Create, Durable, Ledger, Program, Wait
from tests.simulation.service import Service
from tests.simulation.world import Process, World

_CALL: ContextVar[int | None] = ContextVar("whose context it is", default=None)
T = TypeVar("T")


class Run:
    """A process from one start to its end, or to a kill."""

    def __init__(self, world: World, service: Service, ledger: Ledger, program: Program, folder: Path) -> None:
        self.world, self.service, self.ledger, self.program = world, service, ledger, program
        self._folder = folder
        self._events: Counter[str] = Counter()
        self.process: Process

    async def main(self, process: Process) -> None:
        """Do everything that the program says, and leave nothing behind."""
        self.process = process
        name, sessions = self.program.name, []
        async with AsyncExitStack() as stack:
            journals = {}
            if any(isinstance(one, Batch | Durable) for one in self.program.activities):
                location = self._folder / f"{name}.db"
                journals["journal"] = await stack.enter_async_context(Journal.open(location))
                await self._check_owned(location)
            works = []
            for number, activity in enumerate(self.program.activities):
                sender = f"{name}.{process.starts}.{number}"
                session = await stack.enter_async_context(self._session(sender))
                sessions.append(session)
                do: Any = {Calls: self._calls, Batch: self._batch, Durable: self._durable}[type(activity)]
                works.append(
                    do(activity, session, sender, f"{name}-{number}", **(journals if do != self._calls else {}))
                )
            closes = self.program.closes and (process.starts == 1 or not journals)
            if closes:
                works.append(self._close(sessions[0], f"{name}.{process.starts}.0"))
            try:
                await _together(works)
            except SessionClosedError:
                if not (closes and journals):
                    raise
                raise JournalError("a session was closed: the process is started again", "io") from None
            for session in sessions[bool(closes) :]:
                self._check_stats(session)
            for journal in journals.values():
                self.ledger.rows[name] = await journal.rows(all_tries=True)
        if self._events["started"] != self._events["ended"]:
            self.world.violate(f"Counters: {self._events} waits were told to hooks")

    async def _check_owned(self, location: Path) -> None:
        with suppress(JournalError):
            async with Journal.open(location):
                self.world.violate("P3: a journal has two owners")

    def _check_stats(self, session: AgentJobsSession | JobTracker) -> None:
        stats = session.stats()
        if stats.jobs or stats.in_flight or stats.due:
            self.world.violate(f"Counters: stats do not return to 0: {stats}")

    def _policy(self) -> PollPolicy:
        interval = self.program.interval
        if interval < 0:
            return PollPolicy(wait=wait_learned())
        return PollPolicy(wait=wait_fixed(interval)) if interval else PollPolicy()

    @asynccontextmanager
    async def _session(self, sender: str) -> AsyncIterator[AgentJobsSession]:
        program = self.program
        session = AgentJobsSession(
            "http://service.test",
            KEY,
            project_id="docs",
            allow_insecure=True,
            user_agent=sender,
            policy=self._policy(),
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
        if isinstance(event, JobPolled | PollFailed) and _CALL.get() is not None:
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
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        """Raise, if a callback is to raise now."""
        if any(fault.what == "raise" for fault in self.world.next("call")):
            raise ValueError("a callback of the user's raises")

    async def _misbehave_if_due(self) -> None:
        for fault in self.world.next("call"):
            if fault.what == "raise":
                raise ValueError("a callback of the user's raises")
            if fault.what == "hang":
                await asyncio.sleep(fault.amount)
            elif fault.what == "swallow":
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(fault.amount)
                await asyncio.sleep(1.0)

    def _check_error(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error)) + repr((error.args, vars(error)))
        if KEY in text:
            self.world.violate(f"P10: the key is in {error!r}")
        if not str(error).isprintable():
            self.world.violate(f"P16: there are control characters in {error!r}")

    async def _close(self, session: AgentJobsSession, sender: str) -> None:
        """Close a session early; a process that has a journal ends then, as one that is to be replaced does."""
        await asyncio.sleep(random.Random(f"{self.world.seed} {sender}").choice((0.01, 0.06, 3.0, 60.0, 200.0)))
        begun, grace = self.world.now, 5.0 if self.program.closes == "drain" else 0.0
        self.ledger.closed[sender] = begun, begun + grace
        await (session.drain(grace) if grace else session.aclose())
        if self.world.now > begun + grace + 0.25 and not self.world.stalled(begun, self.world.now):
            self.world.violate(f"P17: closing took {self.world.now - begun:g} s, with {grace:g} s of grace")
        if not all(isinstance(one, Calls) for one in self.program.activities):
            raise SessionClosedError("the process ends")

    async def _calls(self, calls: Calls, session: AgentJobsSession, sender: str, prefix: str) -> None:
        self.ledger.independent_creates.add(sender)
        if calls.way in {"free", "tracker"}:
            self.ledger.own_get_job.add(sender)
        async with AsyncExitStack() as stack:
            tracker: Any = session
            if calls.way == "tracker":
                tracker = await stack.enter_async_context(JobTracker(self._get_job(session), policy=self._policy()))
            works = [
                self._cancellable(
                    self._call(calls, session, tracker, sender, f"{prefix}.{self.process.starts}", number)
                )
                for number in range(calls.count)
            ]
            await _together(works)
            if tracker is not session:
                self._check_stats(tracker)

    def _get_job(self, session: AgentJobsSession) -> Callable[[JobRef], Awaitable[AgentJob]]:
        async def get_job(ref: JobRef) -> AgentJob:
            if _CALL.get() is not None:
                self.world.violate("P19: a poll of a tracker runs in a caller's context")
            return await session.get_job(ref)

        return get_job

    async def _cancellable(self, work: Coroutine[Any, Any, T]) -> T | None:
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

    async def _noted_run(self, sender: str, work: Coroutine[Any, Any, bool]) -> bool | None:
        """Return what a run of a batch or of durable jobs returns; note when it begins and ends."""
        self.ledger.runs.setdefault(sender, []).append(self.world.now)
        try:
            return await self._cancellable(work)
        finally:
            self.ledger.run_ends.setdefault(sender, []).append(self.world.now)

    @contextmanager
    def _noted(self, call: Call) -> Iterator[None]:
        """Note with which error a call ends, and when."""
        try:
            yield
        except AgentJobsError as error:
            call.error = error
            self._check_error(error)
        except asyncio.CancelledError as error:
            call.error = error
            raise
        finally:
            call.ended = self.world.now

    async def _call(
        self, calls: Calls, session: AgentJobsSession, tracker: Any, sender: str, prefix: str, number: int
    ) -> None:
        await asyncio.sleep(number * calls.gap)
        _CALL.set(number)
        prompt, project = f"{prefix}-{number}", PROJECTS[number % calls.projects]
        begun = self.process.loop.name, sender, self.world.now
        if calls.way == "run":
            wait = Wait(*begun, calls.timeout, way="run")
            self.ledger.waits.append(wait)
            try:
                with self._noted(wait):
                    wait.job = await session.run_job(
                        prompt, project_id=project, timeout=calls.timeout, on_update=self._on_update()
                    )
            finally:
                wait.job_id = next(iter(self.service.agents.get(prompt, [])), "")
            return
        create = Create(*begun, calls.create_timeout, prompt=prompt)
        self.ledger.creates.append(create)
        with self._noted(create):
            create.job = await session.create_job(
                prompt, project_id=project, timeout=calls.create_timeout, label=prompt
            )
        if create.job is None:
            return
        ways = ("wait", "watch", "updates") if calls.way == "shared" else (calls.way,)
        works = [self._wait(way, calls, session, tracker, sender, create.job) for way in ways]
        await _together([*works, self._notify(session, create.job)] if calls.notifies else works)

    async def _notify(self, session: AgentJobsSession, job: AgentJob) -> None:
        await asyncio.sleep(7.0)
        with suppress(SessionClosedError):
            session.notify(job)

    async def _wait(
        self, way: str, calls: Calls, session: AgentJobsSession, tracker: Any, sender: str, job: AgentJob
    ) -> None:
        """Wait for a job; where the session remembers what it was asked, once more after a timeout."""
        for _ in range(1 if way == "free" else 2):
            wait = Wait(self.process.loop.name, sender, self.world.now, calls.timeout, job_id=job.id, way=way)
            self.ledger.waits.append(wait)
            with self._noted(wait):
                wait.job = await self._waited(way, calls, session, tracker, job)
            if not isinstance(wait.error, WaitTimeoutError):
                return

    async def _waited(
        self, way: str, calls: Calls, session: AgentJobsSession, tracker: Any, job: AgentJob
    ) -> AgentJob | None:
        timeout = calls.timeout
        if way == "watch":
            return await session.watch(job, timeout=timeout)
        if way == "updates":
            last = job
            async with session.updates(job, timeout=timeout) as changes:
                async for state in changes:
                    last = state
                    with suppress(ValueError):
                        await self._misbehave_if_due()
            return last
        if way == "completed":
            async with session.as_completed([job], timeout=timeout) as finished:
                async for result in finished:
                    return result.result()
        if way == "free":
            return await wait_for_job(job, get_job=session.get_job, policy=self._policy(), timeout=timeout)
        found: AgentJob = await tracker.wait_for_job(job.ref, timeout=timeout, on_update=self._on_update())
        return found

    def _on_update(self) -> Callable[[AgentJob], None]:
        call = _CALL.get()

        def on_update(_job: AgentJob) -> None:
            if _CALL.get() != call:
                self.world.violate("P19: on_update does not run in the context in which its wait began")
            self._raise_if_due()

        return on_update

    async def _batch(
        self, batch: Batch, session: AgentJobsSession, sender: str, prefix: str, *, journal: Journal
    ) -> None:
        self.ledger.batches[sender] = batch
        for is_last in (False, True):
            while not await self._noted_run(sender, self._run_batch(batch, session, sender, prefix, journal)):  # noqa: ASYNC110 - the condition is the work
                await asyncio.sleep(30.0)
            if not is_last:
                await asyncio.sleep(300.0)  # until nothing that was sent can still arrive
                await self._settle(batch, prefix, journal)

    async def _run_batch(
        self, batch: Batch, session: AgentJobsSession, sender: str, prefix: str, journal: Journal
    ) -> bool:
        """Run it once; return whether all items have ended."""
        max_active, max_sending = batch.limits(self.process.starts)
        rate = None if batch.rate is None else Rate(batch.rate[0], batch.rate[1], scope=batch.rate[2])
        try:
            async with run_batch(
                session,
                self._items(batch, prefix),
                journal=journal,
                max_active=max_active,
                max_sending=max_sending,
                create_rate=rate,
                timeout=batch.timeout,
                unknown_for=batch.unknown_for,
            ) as results:
                seen: set[str] = set()
                async for result in results:
                    self._check_result(result, seen)
        except AuthError as error:
            self._check_error(error)
            await self._check_refused(sender, prefix, journal)
        except ValueError:  # of the source
            return False
        finally:
            self.ledger.run_ends.setdefault(sender, []).append(self.world.now)
        rows = [row async for row in journal.rows() if row.key.startswith(f"{prefix}/")]
        for row in rows:
            before = self.ledger.ends.setdefault((self.program.name, row.number), row.state)
            if before is not row.state and before in {State.COMPLETED, State.FAILED, State.ARCHIVED}:
                self.world.violate(f"P3: {row.key} was {before}, and is {row.state}")
            self.ledger.ends[self.program.name, row.number] = row.state
        return len(rows) == batch.count and all(row.state in _ENDS for row in rows)

    def _check_result(self, result: BatchResult, seen: set[str]) -> None:
        if result.item.key in seen:
            self.world.violate(f"P3: a run gives two results of {result.item.key}")
        seen.add(result.item.key)
        if result.job is not None and result.job.id not in self.service.agents.get(result.item.prompt, []):
            self.world.violate(f"P12: the result of {result.item.key} has {result.job.id}, which is another's")
        if result.error is not None:
            self._check_error(result.error)

    async def _items(self, batch: Batch, prefix: str) -> AsyncIterator[BatchItem]:
        for number, key in enumerate(batch.keys(prefix)):
            await self._misbehave_if_due()
            yield BatchItem(key, key, PROJECTS[number % batch.projects])

    async def _check_refused(self, sender: str, prefix: str, journal: Journal) -> None:
        """Report a run that ended with an `AuthError` though another project could still send."""
        sent = [one for one in self.service.requests if one.kind == "create" and one.sender == sender]
        refused = {one.project for one in sent if one.status in {401, 403}}
        for row in await journal.rows(State.PLANNED):
            if row.error is None and row.key.startswith(f"{prefix}/") and (row.project_id or "docs") not in refused:
                self.world.violate(f"P14: {row.key} of {row.project_id} is left; refused are {refused}")

    async def _settle(self, batch: Batch, prefix: str, journal: Journal) -> None:
        """Settle what is unknown by the truth, or give it up, and try again what has failed."""
        for n, row in enumerate([row async for row in journal.unknown() if row.key.startswith(f"{prefix}/")]):
            self.ledger.settled.setdefault(row.prompt, []).append(self.world.now)
            agents = self.service.agents.get(row.prompt, [])
            if n % 3 == 2:
                await journal.abandon(row.key)
            elif agents:
                await journal.resolve(row.key, job_id=agents[-1])
            else:
                await journal.resolve(row.key, send_again=True)
        if batch.retries:
            failed = Where(states=(State.FAILED, State.ARCHIVED, State.REJECTED), text=f"{prefix}/")
            for row in await journal.rows(where=failed):
                self.service.allowed[row.prompt] = min(len(self.service.agents.get(row.prompt, [])) + 1, 2)
                self.ledger.settled.setdefault(row.prompt, []).append(self.world.now)
            await journal.retry(where=failed, max_tries=2)

    async def _durable(
        self, durable: Durable, session: AgentJobsSession, sender: str, prefix: str, *, journal: Journal
    ) -> None:
        wanted = {key: number for number, key in enumerate(durable.keys(prefix))}
        while not await self._noted_run(sender, self._run_durable(durable, session, sender, wanted, journal)):  # noqa: ASYNC110 - the condition is the work
            await asyncio.sleep(30.0)

    async def _run_durable(
        self, durable: Durable, session: AgentJobsSession, sender: str, wanted: dict[str, int], journal: Journal
    ) -> bool:
        """Submit everything twice, follow it to its end, and settle what is unknown; return that it is done."""

        async def on_end(entry: Any, end: Any) -> None:
            said = f"{type(end).__name__} {end.status} {end.id}" if isinstance(end, AgentJob) else type(end).__name__
            self.ledger.on_end_calls.setdefault(entry.key, []).append(said)
            if isinstance(end, BaseException):
                self._check_error(end)
            await asyncio.sleep(durable.on_end_seconds)
            if durable.on_end_seconds and isinstance(end, CreateOutcomeUnknownError):
                await self._settle_by_truth(journal, entry.key)  # while it is told
            await self._misbehave_if_due()
            self.ledger.on_end_returned.add(entry.key)

        async def on_change(_entry: Any, _job: AgentJob) -> None:
            await self._misbehave_if_due()

        is_silent = durable.begins_silent and self.process.starts == 1 and len(self.ledger.runs[sender]) == 1
        async with DurableJobs(session, journal, on_end=None if is_silent else on_end, on_change=on_change) as jobs:
            twice = [(key, number + again) for key, number in wanted.items() for again in range(2)]
            projects = {key: PROJECTS[number % durable.projects] for key, number in wanted.items()}
            submits = [self._submit(jobs, durable, key, projects[key], number) for key, number in twice]
            await _together([self._cancellable(submit) for submit in submits])
            for key in wanted:  # the callers of both may have been cancelled
                await self._submit(jobs, durable, key, projects[key], 0)
            if is_silent:
                await self._ended(journal, wanted)
                return False  # the next run tells all ends
            while not wanted.keys() <= self.ledger.on_end_returned:  # noqa: ASYNC110 - before an earlier kill, too
                await asyncio.sleep(20.0)
            for row in [row async for row in journal.unknown() if row.key in wanted]:
                await asyncio.sleep(120.0)
                await self._settle_by_truth(journal, row.key)
            await self._ended(journal, wanted)
            calls = self.ledger.on_end_calls
            while any(calls[key][-1] == "CreateOutcomeUnknownError" for key in wanted if key in self.ledger.settled):  # noqa: ASYNC110 - as above
                await asyncio.sleep(20.0)
        return True

    async def _ended(self, journal: Journal, wanted: dict[str, int]) -> None:
        """Wait until all rows have ended."""
        while any(row.key in wanted and row.state not in _ENDS for row in await journal.rows()):  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(20.0)

    async def _settle_by_truth(self, journal: Journal, key: str) -> None:
        """Settle an unknown row with the job that the service has for it, if there is one."""
        for job_id in self.service.agents.get(key, []):
            self.ledger.settled.setdefault(key, []).append(self.world.now)
            await journal.resolve(key, job_id=job_id)

    async def _submit(self, jobs: DurableJobs, durable: Durable, key: str, project: str | None, number: int) -> None:
        await asyncio.sleep(number * durable.gap)
        while True:
            try:
                await jobs.submit(key, key, project_id=project, wait_for_create=durable.waits)
            except (JournalError, SessionClosedError):
                raise
            except AgentJobsError as error:
                self._check_error(error)
                await asyncio.sleep(30.0)
            else:
                return


_ENDS: Final = frozenset(State) - {State.PLANNED, State.SENDING, State.ACTIVE}


async def _together(works: list[Any]) -> None:
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
