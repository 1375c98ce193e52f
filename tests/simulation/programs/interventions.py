"""A person who acts on rows by the public face, beside what works on them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from attrs import frozen

from agentjobs_async import AgentJobsSession, InvalidInputError, JobRef, JournalError, SessionClosedError
from agentjobs_async.batch import Journal, JournalRow, State, Where
from agentjobs_async.durable import DurableJobs
from tests.simulation.interventions import PLANS, Act, Intervention
from tests.simulation.programs.run import Run

_NOTICES: Final = (0.0, 0.0, 0.02, 0.1, 0.3)  # s, each since the one before


@frozen
class Person:
    """Who acts on the rows of one activity, and notes what came of it.

    Attributes:
        session: Polls for the activity.
        prefix: That of the activity.
        keys: The keys of its items.
        jobs: The durable jobs that follow the rows; `None` for a batch.
        submit: Submits an item anew.
    """

    run: Run
    journal: Journal
    session: AgentJobsSession
    prefix: str
    keys: tuple[str, ...]
    jobs: DurableJobs | None = None
    submit: Callable[[int], Awaitable[None]] | None = None

    @asynccontextmanager
    async def beside(self, interventions: tuple[Intervention, ...]) -> AsyncIterator[None]:
        """Intervene while the block runs; at its end, wait for what is being done."""
        if not interventions:
            yield
            return
        over = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._intervene(interventions, over))
        try:
            yield
            over.set()
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _intervene(self, interventions: tuple[Intervention, ...], over: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(interventions):
                if (self.prefix, number) not in self.run.ledger.intervened:
                    group.create_task(self._when_due(number, one, over))

    async def _when_due(self, number: int, intervention: Intervention, over: asyncio.Event) -> None:
        """Do what is to be done when it is due, unless that is `over` before."""
        at = intervention.at
        if intervention.after:
            reached = self.run.service.moment(intervention.after, self._key(intervention.item))
            if await _first(reached, over):
                return
            at += self.run.world.now
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), max(at - self.run.world.now, 0.0))
        if over.is_set():
            return
        self.run.ledger.intervened.add((self.prefix, number))
        await self.run.cancellable(self._do(intervention))

    def _key(self, item: int) -> str:
        return self.keys[item] if item < len(self.keys) else f"{self.prefix}-never"

    async def _do(self, intervention: Intervention) -> None:
        key = self._key(intervention.item)
        with suppress(JournalError, SessionClosedError):
            if intervention.verb == "submit":
                if self.submit is not None and intervention.item < len(self.keys):
                    await self.submit(intervention.item)
            elif intervention.verb == "retry all":
                await self.retry_failed(None)
            elif intervention.verb == "abandon planned":
                await self.abandon_planned()
            elif intervention.verb == "notify":
                await self._notify(key)
            elif intervention.verb == "resolve":
                await self.resolve(key)
            else:
                act = await self.act(intervention.verb, key)
                if act.outcome == "done" and intervention.item == len(self.keys):
                    self.run.world.violate(f"Rows: {act.verb} of a key that was never planned gave {act.value!r}")

    async def _notify(self, key: str) -> None:
        """Report the newest job of an item as a webhook does that comes several times."""
        ids = self.run.service.agents.get(key, [])
        if not ids:
            return
        ref = JobRef(self.run.service.jobs[ids[-1]].project, ids[-1])
        for seconds in _NOTICES:
            await asyncio.sleep(seconds)
            if self.jobs is None:
                self.session.notify(ref)
            else:
                await self.jobs.notify(key)

    async def act(self, verb: str, key: str, job_id: str | None = None) -> Act:
        """Do something about a row, and return what came of it.

        Raises:
            JournalError: The journal can't be read or written.
            SessionClosedError: The durable jobs are closed.
        """
        act = self._begun(verb, key)
        try:
            act.value = await self._done(verb, key, job_id)
            if act.value is False:  # it was not followed
                self._refused(act)
            else:
                act.outcome = "done"
        except InvalidInputError:
            self._refused(act)
        finally:
            act.ended = self.run.world.now
        return act

    async def _done(self, verb: str, key: str, job_id: str | None) -> Any:
        match verb:
            case "withdraw" if self.jobs is not None:
                return await self.jobs.abandon(key)
            case "unfollow" if self.jobs is not None:
                return await self.jobs.unfollow(key)
            case "abandon":
                return await self.journal.abandon(key)
            case "retry":
                return await (self.jobs or self.journal).retry(key)
            case "send again":
                return await self.journal.resolve(key, send_again=True)
            case "resolve":
                return await self.journal.resolve(key, job_id=job_id)
        raise ValueError(verb)

    async def resolve(self, key: str) -> None:
        """Settle an item with the newest job that the service has for it and no earlier try of it has, if any."""
        known = {row.job_id for row in (await self.rows_of(key))[:-1]}
        ids = [one for one in self.run.service.agents.get(key, []) if one not in known]
        if ids:
            await self.act("resolve", key, ids[-1])

    async def retry_failed(self, max_tries: int | None) -> None:
        """Try all items again that have failed, and not been tried so often."""
        acts = [self._begun("retry", key) for key in self.keys]
        where = Where(states=(State.FAILED, State.ARCHIVED, State.REJECTED), text=self.prefix)
        planned = set(await self.journal.retry(where=where, max_tries=max_tries))
        for act in acts:
            act.ended = self.run.world.now
            if act.key in planned:
                act.outcome = "done"
            else:
                self._refused(act)

    async def abandon_planned(self) -> None:
        """Withdraw all items that are planned."""
        acts = [self._begun("abandon", key) for key in self.keys]
        abandoned = set(await self.journal.abandon(where=Where(prefix=f"{self.prefix}-")))
        for act in acts:
            act.ended = self.run.world.now
            if act.key in abandoned:
                act.outcome = "done"
            else:
                self._refused(act)

    async def rows_of(self, key: str) -> list[JournalRow]:
        """Return all tries of an item, the newest one last."""
        return [row for row in await self.journal.rows(all_tries=True, where=Where(text=key)) if row.key == key]

    def _begun(self, verb: str, key: str) -> Act:
        act = Act(verb, key, self.run.world.now)
        self.run.ledger.acts.append(act)
        if verb != "unfollow":
            self.run.ledger.settled.setdefault(key, []).append(act.begun)
        if verb in PLANS:
            self.run.service.allow(key, 1)
        return act

    def _refused(self, act: Act) -> None:
        act.outcome = "refused"
        if act.verb != "unfollow":
            settled = self.run.ledger.settled
            settled[act.key].remove(act.begun)
            if not settled[act.key]:
                del settled[act.key]
        if act.verb in PLANS:
            self.run.service.allow(act.key, -1)


async def _first(reached: asyncio.Event, over: asyncio.Event) -> bool:
    """Wait for either; return whether it is over."""
    waits = [asyncio.create_task(one.wait()) for one in (reached, over)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
    return over.is_set()
