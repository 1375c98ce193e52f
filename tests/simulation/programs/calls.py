"""Jobs that are created and waited for one by one, in each of the ways there are."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import Any, Final

from attrs import evolve, field, frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    JobRef,
    JobTracker,
    SessionClosedError,
    WaitTimeoutError,
    wait_for_job,
)
from tests.simulation.activities import PROJECTS, Calls, extra_of
from tests.simulation.ledger import Create, Wait
from tests.simulation.programs.listening import CALL, Listener
from tests.simulation.programs.run import Run, together
from tests.simulation.programs.sources import Stream

_READ_EVERY: Final = 61.0  # s, between two reads of a job


@frozen
class CallsWork:
    """What a process does for `calls`, by one session."""

    run: Run
    calls: Calls
    session: AgentJobsSession
    sender: str
    prefix: str
    created: list[AgentJob] = field(factory=list)

    async def do(self) -> None:
        """Create and wait for all jobs."""
        self.run.ledger.independent_creates.add(self.sender)
        if self.calls.way in {"free", "tracker", "read"}:
            self.run.ledger.own_get_job.add(self.sender)
        async with AsyncExitStack() as stack:
            tracker: Any = self.session
            if self.calls.way == "tracker":
                hooks = Listener(self.run, f"{self.sender} tracker").hooks()
                tracker = await stack.enter_async_context(
                    JobTracker(self._get_job, policy=self.run.policy(self.sender), hooks=hooks)
                )
            works = [self.run.cancellable(self._call(tracker, number)) for number in range(self.calls.count)]
            await together(works)
            if self.calls.way == "stream":
                await self.run.cancellable(self._stream())
            if tracker is not self.session:
                self.run.check_stats(tracker)

    async def _get_job(self, ref: JobRef) -> AgentJob:
        if CALL.get() is not None:
            self.run.world.violate("P19: a poll of a tracker runs in a caller's context")
        return await self.session.get_job(ref)

    async def _call(self, tracker: Any, number: int) -> None:
        await asyncio.sleep(number * self.calls.gap)
        CALL.set(number)
        prompt = f"{self.prefix}.{self.run.process.starts}-{number}"
        project = PROJECTS[number % self.calls.projects]
        begun = self.run.process.loop.name, self.sender, self.run.world.now
        if self.calls.way == "run":
            wait = Wait(*begun, self.calls.timeout, way="run", label=prompt)
            self.run.ledger.waits.append(wait)
            try:
                with self.run.noted(wait):
                    wait.job = await self.session.run_job(
                        prompt,
                        project_id=project,
                        timeout=self.calls.timeout,
                        on_update=self._on_update(),
                        label=prompt,
                        extra=extra_of(prompt),
                    )
            finally:
                wait.job_id = next(iter(self.run.service.agents.get(prompt, [])), "")
            return
        create = Create(*begun, self.calls.create_timeout, prompt=prompt)
        self.run.ledger.creates.append(create)
        await self._create(create, project)
        if create.job is None:
            return
        if self.calls.way == "stream":
            self.created.append(create.job)
            return
        if self.calls.way == "read":
            await self._read(create.job)
            return
        works = [self._wait(way, tracker, create.job, turn) for turn, way in enumerate(self._ways())]
        await together([*works, self._notify(create.job)] if self.calls.notifies else works)

    def _ways(self) -> tuple[str, ...]:
        """Return the ways of the waits for one job."""
        if self.calls.way == "shared":
            return "wait", "watch", "updates"
        has_labels = len(self.run.program.sessions.labels) > 1 and self.calls.way not in {"free", "tracker"}
        return (self.calls.way,) * (2 if has_labels else 1)

    async def _create(self, create: Create, project: str | None) -> None:
        """Create a job, and store it in a block for which a draining waits, if its program stores jobs."""
        with nullcontext() if self.calls.stores is None else self.session.recording():
            await self._create_noted(create, project)
            if create.job is not None and self.calls.stores is not None:
                await self._store(create.job.id, self.calls.stores)

    async def _store(self, job_id: str, seconds: float) -> None:
        is_stored = False
        try:
            await asyncio.sleep(seconds)
            is_stored = True
        finally:
            self.run.ledger.stored[job_id] = self.run.world.now, is_stored

    async def _create_noted(self, create: Create, project: str | None) -> None:
        with self.run.noted(create):
            create.job = await self.session.create_job(
                create.prompt,
                project_id=project,
                timeout=create.timeout,
                label=create.prompt,
                extra=extra_of(create.prompt),
            )

    async def _read(self, job: AgentJob) -> None:
        """Read a job until it has ended, more slowly than any server may ask for."""
        until = self.run.world.now + self.calls.timeout
        while not job.is_terminal and self.run.world.now < until:
            read = self.run.new_call(self.sender)
            with self.run.noted(read):
                job = await self.session.get_job(job)
            if isinstance(read.error, SessionClosedError):
                return
            await asyncio.sleep(_READ_EVERY)

    async def _stream(self) -> None:
        """Wait for all jobs as a source gives them: to the end, or until each has a result where there is no end."""
        stream = Stream(self.run, self.calls, self.session, self.sender, self.created)
        try:
            with suppress(SessionClosedError):
                await stream.read()
        finally:
            stream.left()

    async def _notify(self, job: AgentJob) -> None:
        await asyncio.sleep(7.0)
        with suppress(SessionClosedError):
            self.session.notify(job)

    def _given(self, job: AgentJob, turn: int) -> AgentJob | JobRef:
        """Return what the next wait for a job is given: the job with a label, or its ref."""
        labels = self.run.program.sessions.labels
        match labels[turn % len(labels)]:
            case "none":
                return job.ref
            case "other":
                return evolve(job, label=f"{job.label} {turn}")
            case _:
                return job

    async def _wait(self, way: str, tracker: Any, created: AgentJob, turn: int) -> None:
        """Wait for a job; where the session remembers what it was asked, once more after a timeout."""
        await asyncio.sleep(turn * self.run.program.sessions.label_gap)
        job = self._given(created, turn)
        for _ in range(1 if way == "free" else 2):
            begun = self.run.process.loop.name, self.sender, self.run.world.now
            label = job.label if isinstance(job, AgentJob) else None
            wait = Wait(*begun, self.calls.timeout, job_id=created.id, way=way, label=label)
            self.run.ledger.waits.append(wait)
            with self.run.noted(wait):
                wait.job = await self._waited(way, tracker, job)
            if not isinstance(wait.error, WaitTimeoutError):
                return

    async def _waited(self, way: str, tracker: Any, job: AgentJob | JobRef) -> AgentJob | None:
        timeout = self.calls.timeout
        if way == "watch":
            return await self.session.watch(job, timeout=timeout)
        if way == "updates":
            last = job if isinstance(job, AgentJob) else None
            async with self.session.updates(job, timeout=timeout) as changes:
                async for state in changes:
                    last = state
                    with suppress(ValueError):
                        await self.run.misbehave_if_due()
            return last
        if way == "completed":
            async with self.session.as_completed([job], timeout=timeout) as finished:
                async for result in finished:
                    return result.result()
        if way == "free":
            return await wait_for_job(
                job, get_job=self.session.get_job, policy=self.run.policy(self.sender), timeout=timeout
            )
        found: AgentJob = await tracker.wait_for_job(job, timeout=timeout, on_update=self._on_update())
        return found

    def _on_update(self) -> Callable[[AgentJob], None]:
        call = CALL.get()

        def on_update(_job: AgentJob) -> None:
            if CALL.get() != call:
                self.run.world.violate("P19: on_update does not run in the context in which its wait began")
            self.run.raise_if_due()

        return on_update
