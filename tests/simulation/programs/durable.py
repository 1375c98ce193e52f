"""Durable jobs, submitted twice each, and followed until each end was told."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Final, Literal

from attrs import field, frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    CreateOutcomeUnknownError,
    JournalError,
    SessionClosedError,
)
from agentjobs_async.batch import Journal, JournalRow, Limits, Rate, State
from agentjobs_async.durable import DurableEntry, DurableJobs
from tests.simulation.activities import PROJECTS, Durable, extra_of
from tests.simulation.ledger import Submission, Told
from tests.simulation.programs.interventions import Person
from tests.simulation.programs.run import ENDS, Run, together
from tests.simulation.tries import tries_by_key

_MOST_LOOKS: Final = 150  # of 20 s each, for an end to be told: far more than any pause between two calls of `on_end`


@frozen
class DurableWork:
    """What a process does for durable jobs, by one session, on a journal that other work may share."""

    run: Run
    durable: Durable
    session: AgentJobsSession
    sender: str
    prefix: str
    journal: Journal
    telling: set[str] = field(factory=set, init=False)  # the keys that `on_end` is under way for

    async def do(self) -> None:
        """Run it until each end was told."""
        wanted = {key: number for number, key in enumerate(self.durable.keys(self.prefix))}
        if self.durable.rate is not None:
            self.run.ledger.rates[self.sender] = self.durable.rate
        while not await self.run.noted_run(self.sender, self._run_durable(wanted)):  # noqa: ASYNC110 - the condition is the work
            await asyncio.sleep(30.0)

    async def _run_durable(self, wanted: dict[str, int]) -> bool:
        """Submit everything twice, follow it to its end, and settle what is unknown; return whether it is done."""
        runs = self.run.ledger.runs[self.sender]
        is_silent = self.durable.begins_silent and self.run.process.starts == 1 and len(runs) == 1
        on_end = None if is_silent else self._on_end
        rate = self.durable.rate and Rate(self.durable.rate[0], self.durable.rate[1], scope=self.durable.rate[2])
        limits: Limits | Literal["kept"] = "kept" if rate is None else Limits(create_rate=rate)
        async with DurableJobs(
            self.session, self.journal, on_end=on_end, on_change=self._on_change, limits=limits
        ) as jobs:
            person = self._person(jobs, wanted)
            with self.run.noted_leaving(self.sender):
                async with person.beside(self.durable.interventions):
                    await self._submit_all(jobs, wanted)
                    if not is_silent:
                        await self._told(wanted, person)
                if is_silent:
                    await self._ended(wanted)
                    return False  # the next run tells all ends
                if self.durable.interventions:
                    await self._told(wanted, person)
        return True

    def _person(self, jobs: DurableJobs | None, wanted: dict[str, int]) -> Person:
        async def submit(item: int) -> None:
            assert jobs is not None
            project = self.run.named(PROJECTS[item % self.durable.projects], self.sender)
            await self._submit(jobs, [*wanted][item], project, 0)

        return Person(self.run, self.journal, self.session, self.prefix, tuple(wanted), jobs, submit)

    async def _on_end(self, entry: DurableEntry, end: AgentJob | Exception) -> None:
        said = f"{type(end).__name__} {end.status} {end.id}" if isinstance(end, AgentJob) else type(end).__name__
        self.run.ledger.on_end_calls.setdefault(entry.key, []).append(said)
        told = Told(entry.key, entry.state, self.run.world.now)
        self.run.ledger.told.append(told)
        self.run.service.reached("told", entry.key)
        if entry.key in self.telling:
            self.run.world.violate(f"Told: two calls of on_end for {entry.key} at once")
        self.telling.add(entry.key)
        try:
            if isinstance(end, BaseException):
                self.run.check_error(end)
            await asyncio.sleep(self.durable.on_end_seconds)
            await self._check_recorded(entry)
            if self.durable.on_end_seconds and isinstance(end, CreateOutcomeUnknownError):
                await self._settle_by_truth(entry.key)  # while it is told
            await self.run.misbehave_if_due()
        finally:
            self.telling.discard(entry.key)
        told.returned = self.run.world.now

    async def _check_recorded(self, entry: DurableEntry) -> None:
        """Report an end that is told and not in the journal, unless it was settled meanwhile."""
        states = [row.state for row in await self.journal.rows(all_tries=True) if row.key == entry.key]
        is_settled = entry.state is State.UNKNOWN and self.run.ledger.acts_on(entry.key)
        if entry.state not in states and not is_settled:
            self.run.world.violate(f"Told: on_end is told {entry.state} of {entry.key}, whose row is {states}")

    async def _on_change(self, entry: DurableEntry, found: AgentJob | Exception) -> None:
        if isinstance(found, AgentJob):
            self.run.ledger.changes.append((entry.key, self.run.world.now))
        elif (entry.state, entry.job) != (State.PLANNED, None):
            self.run.world.violate(f"Held: on_change is told {found!r} of {entry.key}, which is {entry.state}")
        await self.run.misbehave_if_due()

    async def _submit_all(self, jobs: DurableJobs, wanted: dict[str, int]) -> None:
        twice = [(key, number + again) for key, number in wanted.items() for again in range(2)]
        named = [self.run.named(one, self.sender) for one in PROJECTS[: self.durable.projects]]
        projects = {key: named[number % self.durable.projects] for key, number in wanted.items()}
        submits = [self._submit(jobs, key, projects[key], number) for key, number in twice]
        await together([self.run.cancellable(submit) for submit in submits])
        for key in wanted:  # the callers of both may have been cancelled
            await self._submit(jobs, key, projects[key], 0)

    async def _told(self, wanted: dict[str, int], person: Person) -> None:
        """Wait until each end was told, settle what is unknown, and wait until those ends were told as well.

        What has ended and is not told for long is left: the referee reports it.
        """
        for _ in range(_MOST_LOOKS):
            if all(map(self._is_told_once, wanted)):  # before an earlier kill, too
                break
            await asyncio.sleep(20.0)
        for row in [row async for row in self.journal.unknown() if row.key in wanted]:
            await asyncio.sleep(120.0)
            await person.resolve(row.key)
        looks = 0
        while looks < _MOST_LOOKS and (due := await self._due(wanted)):
            looks = 0 if any(row.state not in ENDS for row in due) else looks + 1
            await asyncio.sleep(20.0)

    def _is_told_once(self, key: str) -> bool:
        ledger = self.run.ledger
        return any(one.key == key and one.returned < inf for one in ledger.told) or bool(
            ledger.acts_on(key, "unfollow")
        )

    async def _due(self, wanted: dict[str, int]) -> list[JournalRow]:
        """Return the tries for which something is still to be done: a planned one is always followed."""
        begun, rows = self.run.world.now, await self.journal.rows(all_tries=True)
        self.run.check_rows(rows, begun)
        ledger = self.run.ledger
        items = [tries for key, tries in tries_by_key(rows).items() if key in wanted]
        newest = [tries[-1] for tries in items]
        sent = [row for row in newest if row.state is State.ACTIVE and not ledger.is_unfollowed(row)]
        unsent = [row for row in newest if row.state in {State.PLANNED, State.SENDING}]
        return [*sent, *unsent, *(row for tries in items for row in ledger.untold(tries))]

    async def _ended(self, wanted: dict[str, int]) -> None:
        """Wait until all rows that are followed have ended."""
        while any(row.state not in ENDS for row in await self._due(wanted)):  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(20.0)

    async def _settle_by_truth(self, key: str) -> None:
        """Settle an unknown row with the job that the service has for it, if there is one."""
        await self._person(None, {key: 0}).resolve(key)

    def _noted(self) -> AbstractContextManager[None]:
        """Note a submission that waits for its create; one that is only planned needs no session."""
        if not self.durable.waits:
            return nullcontext()
        return self.run.noted(self.run.new_call(self.sender, Submission))

    async def _submit(self, jobs: DurableJobs, key: str, project: str | None, number: int) -> None:
        await asyncio.sleep(number * self.durable.gap)
        self.run.service.reached("given", key)
        while True:
            try:
                with self._noted():
                    extra, waits = extra_of(key), self.durable.waits
                    await jobs.submit(key, key, project_id=project, extra=extra, wait_for_create=waits)
            except (JournalError, SessionClosedError):
                raise
            except AgentJobsError as error:
                self.run.check_error(error)
                await asyncio.sleep(30.0)
            else:
                return
