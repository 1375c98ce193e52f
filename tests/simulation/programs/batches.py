"""A batch, run until all of its items have ended."""

import asyncio
from collections.abc import AsyncIterator

from attrs import frozen

from agentjobs_async import AgentJobsSession, AuthError
from agentjobs_async.batch import BatchItem, BatchResult, Journal, Rate, State, Where, run_batch
from tests.simulation.ledger import PROJECTS, Batch
from tests.simulation.programs.run import ENDS, Run


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
        for is_last in (False, True):
            while not await self.run.noted_run(self.sender, self._run_batch()):  # noqa: ASYNC110 - the condition is the work
                await asyncio.sleep(30.0)
            if not is_last:
                await asyncio.sleep(300.0)  # until nothing that was sent can still arrive
                await self._settle()

    async def _run_batch(self) -> bool:
        """Run it once; return whether all items have ended."""
        max_active, max_sending = self.batch.limits(self.run.process.starts)
        rate = self.batch.rate and Rate(self.batch.rate[0], self.batch.rate[1], scope=self.batch.rate[2])
        try:
            async with run_batch(
                self.session,
                self._items(),
                journal=self.journal,
                max_active=max_active,
                max_sending=max_sending,
                create_rate=rate,
                timeout=self.batch.timeout,
                unknown_for=self.batch.unknown_for,
            ) as results:
                seen: set[str] = set()
                async for result in results:
                    self._check_result(result, seen)
        except AuthError as error:
            self.run.check_error(error)
            await self._check_refused()
        except ValueError:  # of the source
            return False
        finally:
            self.run.ledger.run_ends.setdefault(self.sender, []).append(self.run.world.now)
        rows = [row async for row in self.journal.rows() if row.key.startswith(f"{self.prefix}/")]
        self.run.note_rows(rows)
        for row in rows:
            before = self.run.ledger.ends.setdefault((self.run.program.name, row.number), row.state)
            if before is not row.state and before in {State.COMPLETED, State.FAILED, State.ARCHIVED}:
                self.run.world.violate(f"P3: {row.key} was {before}, and is {row.state}")
            self.run.ledger.ends[self.run.program.name, row.number] = row.state
        return len(rows) == self.batch.count and all(row.state in ENDS for row in rows)

    def _check_result(self, result: BatchResult, seen: set[str]) -> None:
        if result.item.key in seen:
            self.run.world.violate(f"P3: a run gives two results of {result.item.key}")
        seen.add(result.item.key)
        if result.job is not None and result.job.id not in self.run.service.agents.get(result.item.prompt, []):
            self.run.world.violate(f"P12: the result of {result.item.key} has {result.job.id}, which is another's")
        if result.error is not None:
            self.run.check_error(result.error)

    async def _items(self) -> AsyncIterator[BatchItem]:
        for number, key in enumerate(self.batch.keys(self.prefix)):
            await self.run.misbehave_if_due()
            yield BatchItem(key, key, self.run.named(PROJECTS[number % self.batch.projects], self.sender))

    async def _check_refused(self) -> None:
        """Report a run that ended with an `AuthError` though another project could still send."""
        sent = [one for one in self.run.service.requests if one.kind == "create" and one.sender == self.sender]
        refused = {one.project for one in sent if one.status in {401, 403}}
        for row in await self.journal.rows(State.PLANNED):
            if (
                row.error is None
                and row.key.startswith(f"{self.prefix}/")
                and (row.project_id or "docs") not in refused
            ):
                self.run.world.violate(f"P14: {row.key} of {row.project_id} is left; refused are {refused}")

    async def _settle(self) -> None:
        """Settle what is unknown by the truth, or give it up, and try again what has failed."""
        unknown = [row async for row in self.journal.unknown() if row.key.startswith(f"{self.prefix}/")]
        for number, row in enumerate(unknown):
            self.run.ledger.settled.setdefault(row.prompt, []).append(self.run.world.now)
            agents = self.run.service.agents.get(row.prompt, [])
            if number % 3 == 2:
                await self.journal.abandon(row.key)
            elif agents:
                await self.journal.resolve(row.key, job_id=agents[-1])
            else:
                await self.journal.resolve(row.key, send_again=True)
        if self.batch.retries:
            failed = Where(states=(State.FAILED, State.ARCHIVED, State.REJECTED), text=f"{self.prefix}/")
            for row in await self.journal.rows(where=failed):
                self.run.service.allowed[row.prompt] = min(len(self.run.service.agents.get(row.prompt, [])) + 1, 2)
                self.run.ledger.settled.setdefault(row.prompt, []).append(self.run.world.now)
            await self.journal.retry(where=failed, max_tries=2)
