"""Durable jobs, submitted twice each, and followed until each end was told."""

import asyncio

from attrs import frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    CreateOutcomeUnknownError,
    JournalError,
    SessionClosedError,
)
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs
from tests.simulation.ledger import PROJECTS, Durable
from tests.simulation.programs.run import ENDS, Run, together


@frozen
class DurableWork:
    """What a process does for durable jobs, by one session, on a journal that other work may share."""

    run: Run
    durable: Durable
    session: AgentJobsSession
    sender: str
    prefix: str
    journal: Journal

    async def do(self) -> None:
        """Run it until each end was told."""
        wanted = {key: number for number, key in enumerate(self.durable.keys(self.prefix))}
        while not await self.run.noted_run(self.sender, self._run_durable(wanted)):  # noqa: ASYNC110 - the condition is the work
            await asyncio.sleep(30.0)

    async def _run_durable(self, wanted: dict[str, int]) -> bool:
        """Submit everything twice, follow it to its end, and settle what is unknown; return whether it is done."""
        runs = self.run.ledger.runs[self.sender]
        is_silent = self.durable.begins_silent and self.run.process.starts == 1 and len(runs) == 1
        on_end = None if is_silent else self._on_end
        async with DurableJobs(self.session, self.journal, on_end=on_end, on_change=self._on_change) as jobs:
            await self._submit_all(jobs, wanted)
            if is_silent:
                await self._ended(wanted)
                return False  # the next run tells all ends
            await self._told(wanted)
        return True

    async def _on_end(self, entry: DurableEntry, end: AgentJob | Exception) -> None:
        said = f"{type(end).__name__} {end.status} {end.id}" if isinstance(end, AgentJob) else type(end).__name__
        self.run.ledger.on_end_calls.setdefault(entry.key, []).append(said)
        if isinstance(end, BaseException):
            self.run.check_error(end)
        await asyncio.sleep(self.durable.on_end_seconds)
        if self.durable.on_end_seconds and isinstance(end, CreateOutcomeUnknownError):
            await self._settle_by_truth(entry.key)  # while it is told
        await self.run.misbehave_if_due()
        self.run.ledger.on_end_returned.add(entry.key)

    async def _on_change(self, _entry: DurableEntry, _job: AgentJob) -> None:
        await self.run.misbehave_if_due()

    async def _submit_all(self, jobs: DurableJobs, wanted: dict[str, int]) -> None:
        twice = [(key, number + again) for key, number in wanted.items() for again in range(2)]
        named = [self.run.named(one, self.sender) for one in PROJECTS[: self.durable.projects]]
        projects = {key: named[number % self.durable.projects] for key, number in wanted.items()}
        submits = [self._submit(jobs, key, projects[key], number) for key, number in twice]
        await together([self.run.cancellable(submit) for submit in submits])
        for key in wanted:  # the callers of both may have been cancelled
            await self._submit(jobs, key, projects[key], 0)

    async def _told(self, wanted: dict[str, int]) -> None:
        """Wait until each end was told, settle what is unknown, and wait until those ends were told as well."""
        while not wanted.keys() <= self.run.ledger.on_end_returned:  # noqa: ASYNC110 - before an earlier kill, too
            await asyncio.sleep(20.0)
        for row in [row async for row in self.journal.unknown() if row.key in wanted]:
            await asyncio.sleep(120.0)
            await self._settle_by_truth(row.key)
        await self._ended(wanted)
        while any(self._is_told_unknown(key) for key in wanted if key in self.run.ledger.settled):  # noqa: ASYNC110 - as above
            await asyncio.sleep(20.0)

    def _is_told_unknown(self, key: str) -> bool:
        return self.run.ledger.on_end_calls[key][-1] == "CreateOutcomeUnknownError"

    async def _ended(self, wanted: dict[str, int]) -> None:
        """Wait until all rows have ended."""
        while any(row.key in wanted and row.state not in ENDS for row in await self.journal.rows()):  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(20.0)

    async def _settle_by_truth(self, key: str) -> None:
        """Settle an unknown row with the job that the service has for it, if there is one."""
        for job_id in self.run.service.agents.get(key, []):
            self.run.ledger.settled.setdefault(key, []).append(self.run.world.now)
            await self.journal.resolve(key, job_id=job_id)

    async def _submit(self, jobs: DurableJobs, key: str, project: str | None, number: int) -> None:
        await asyncio.sleep(number * self.durable.gap)
        while True:
            try:
                await jobs.submit(key, key, project_id=project, wait_for_create=self.durable.waits)
            except (JournalError, SessionClosedError):
                raise
            except AgentJobsError as error:
                self.run.check_error(error)
                await asyncio.sleep(30.0)
            else:
                return
