"""A batch, run until all of its items have ended."""

import asyncio
from typing import Final

from attrs import frozen

from agentjobs_async import AgentJobsSession, AuthError
from agentjobs_async.batch import BatchResult, Journal, Rate, State, run_batch
from tests.simulation.activities import Batch
from tests.simulation.ledger import Results
from tests.simulation.programs.interventions import Person
from tests.simulation.programs.run import ENDS, Run
from tests.simulation.programs.sources import items_of

_ODD_RUNS: Final = 2  # of each start, whose source may have no end, and which may be left early
_LONGEST_ODD_RUN: Final = 900.0  # s, of a run whose source has no end


@frozen
class BatchWork:
    """What a process does for a batch, by one session, on a journal that other work may share."""

    run: Run
    batch: Batch
    session: AgentJobsSession
    sender: str
    prefix: str
    journal: Journal

    async def do(self) -> None:
        """Run it until all items have ended, settle what is unknown, and run it once more."""
        self.run.ledger.batches[self.sender] = self.batch
        if self.batch.rate is not None:
            self.run.ledger.rates[self.sender] = self.batch.rate
        person = Person(self.run, self.journal, self.session, f"{self.prefix}/", tuple(self.batch.keys(self.prefix)))
        async with person.beside(self.batch.interventions):
            await self._run_all()
            if self.batch.shared_with is not None:
                return  # the other one settles what is unknown
            await asyncio.sleep(300.0)  # until nothing that was sent can still arrive
            await self._settle(person)
        await self._run_all()

    async def _run_all(self) -> None:
        """Run it until all items have ended."""
        while not await self.run.noted_run(self.sender, self._run_batch()):  # noqa: ASYNC110 - the condition is the work
            await asyncio.sleep(30.0)

    async def _run_batch(self) -> bool:
        """Run it once; return whether all items have ended."""
        max_active, max_sending = self.batch.limits(self.run.process.starts)
        rate = self.batch.rate and Rate(self.batch.rate[0], self.batch.rate[1], scope=self.batch.rate[2])
        run_number = len(self.run.ledger.runs[self.sender])
        is_odd = run_number <= _ODD_RUNS
        source = items_of(self.run, self.batch, self.prefix, self.sender, self.batch.source if is_odd else "")
        longest = _LONGEST_ODD_RUN if is_odd and self.batch.source in {"silent", "endless"} else None
        given = Results(self.sender, self.run.world.now)
        self.run.ledger.results.append(given)
        try:
            async with (
                asyncio.timeout(longest),
                run_batch(
                    self.session,
                    source,
                    journal=self.journal,
                    max_active=max_active,
                    max_sending=max_sending,
                    create_rate=rate,
                    timeout=self.batch.timeout,
                    unknown_for=self.batch.unknown_for,
                ) as results,
            ):
                with self.run.noted_leaving(self.sender):
                    async for result in results:
                        await self._check_result(result, given)
                        if is_odd and len(given.outcomes) == self.batch.breaks_after:
                            break
                    else:
                        given.until = self.run.world.now
        except AuthError as error:
            self.run.check_error(error)
            await self._check_refused()
        except (ValueError, TimeoutError):  # of the source, or of the program
            return False
        finally:
            self.run.ledger.run_ends.setdefault(self.sender, []).append(self.run.world.now)
        begun = self.run.world.now
        rows = [row async for row in self.journal.rows() if row.key.startswith(f"{self.prefix}/")]
        self.run.check_rows(rows, begun)
        return len(rows) == self.batch.count and all(row.state in ENDS for row in rows)

    async def _check_result(self, result: BatchResult, given: Results) -> None:
        if self.batch.source == "endless" and result.row is None:
            return  # it has given an item once more
        key = result.item.key
        if any(key == earlier for earlier, _ in given.outcomes):
            self.run.world.violate(f"P3: a run gives two results of {key}")
        given.outcomes.append((key, result.outcome.value))
        self.run.service.reached("told", result.item.prompt)
        if self.batch.interventions and result.row is not None:
            await self._check_recorded(key, result)
        if result.job is not None and result.job.id not in self.run.service.agents.get(result.item.prompt, []):
            self.run.world.violate(f"P12: the result of {result.item.key} has {result.job.id}, which is another's")
        if result.error is not None:
            self.run.check_error(result.error)

    async def _check_recorded(self, key: str, result: BatchResult) -> None:
        """Report a result that is not in the journal when it is given."""
        states = [row.state for row in await self.journal.rows() if row.key == key]
        is_end = result.outcome.value in {state.value for state in ENDS}
        if is_end and not self.run.ledger.acts_on(key) and states != [result.outcome.value]:
            self.run.world.violate(f"Told: the result of {key} is {result.outcome}, and its row is {states}")

    async def _check_refused(self) -> None:
        """Report a run that ended with an `AuthError` though another project could still send."""
        sent = [one for one in self.run.service.requests if one.kind == "create" and one.sender == self.sender]
        refused = {one.project for one in sent if one.status in {401, 403}}
        for row in await self.journal.rows(State.PLANNED):
            if (
                row.error is None
                and row.tries == 1  # else it was planned again meanwhile, for the next run
                and row.key.startswith(f"{self.prefix}/")
                and (row.project_id or "docs") not in refused
            ):
                self.run.world.violate(f"P14: {row.key} of {row.project_id} is left; refused are {refused}")

    async def _settle(self, person: Person) -> None:
        """Settle what is unknown by the truth, or give it up, and try again what has failed."""
        unknown = [row async for row in self.journal.unknown() if row.key.startswith(f"{self.prefix}/")]
        for number, row in enumerate(unknown):
            agents = self.run.service.agents.get(row.prompt, [])
            if number % 3 == 2:
                await person.act("abandon", row.key)
            elif agents:
                await person.resolve(row.key)
            else:
                await person.act("send again", row.key)
        if self.batch.retries:
            await person.retry_failed(2)
