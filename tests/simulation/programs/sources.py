"""Sources of items and of jobs: without an end, silent, raising, plain; and a stream of results of such a source."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from math import inf
from typing import Any, Final

from attrs import define, evolve, field

from agentjobs_async import AgentJob, AgentJobsSession
from agentjobs_async.batch import BatchItem
from tests.simulation.activities import PROJECTS, Batch, Calls, extra_of
from tests.simulation.ledger import Wait
from tests.simulation.programs.run import Run

KINDS: Final = ("list", "plain", "plain raising", "raising", "silent", "endless")
_SILENCE: Final = 200.0  # s, of a silent source before each of its first items; then it is silent for ever
_SPOKEN: Final = 3  # items of a silent source
_AGAIN: Final = 20.0  # s, after which a source without an end gives one of its items again


class SourceError(ValueError):
    """A source raises."""


def items_of(run: Run, batch: Batch, prefix: str, sender: str, kind: str) -> Any:
    """Return a source of a kind with the items of a batch."""
    projects = [run.named(one, sender) for one in PROJECTS[: batch.projects]]
    named = [(key, projects[at % batch.projects]) for at, key in enumerate(batch.keys(prefix))]
    items = [BatchItem(key, key, project, extra=extra_of(key)) for key, project in named]
    if batch.shared_with is not None:
        items = [evolve(one, project_id=run.program.project_of(one.prompt)) for one in items]
    return source_of(run, items, kind)


def _given(run: Run, item: Any) -> Any:
    """Return an item that a source gives now."""
    if isinstance(item, BatchItem):
        run.service.reached("given", item.prompt)
    return item


def source_of(run: Run, items: list[Any], kind: str) -> Any:
    """Return a source of a kind."""
    raises_at = run.world.events % (len(items) + 1) if "raising" in kind else -1
    match kind:
        case "list":
            return items
        case "plain" | "plain raising":
            return _plain(run, items, raises_at)
        case "silent":
            return _silent(items)
        case "endless":
            return _endless(items)
    return _async(run, items, raises_at)


def _plain(run: Run, items: Iterable[Any], raises_at: int) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number == raises_at:
            raise SourceError("a source raises")
        yield _given(run, item)


async def _async(run: Run, items: Iterable[Any], raises_at: int) -> AsyncIterator[Any]:
    for number, item in enumerate(items):
        if number == raises_at:
            raise SourceError("a source raises")
        await run.misbehave_if_due()
        yield _given(run, item)


async def _silent(items: list[Any]) -> AsyncIterator[Any]:
    for item in items[:_SPOKEN]:
        await asyncio.sleep(_SILENCE)
        yield item
    await asyncio.get_running_loop().create_future()


async def _endless(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item
    while True:
        for item in items:
            await asyncio.sleep(_AGAIN)
            yield item


@define(eq=False)
class Stream:
    """Waits for all jobs that a source gives, as one `as_completed`."""

    _run: Run
    _calls: Calls
    _session: AgentJobsSession
    _sender: str
    _jobs: list[AgentJob]
    _given: list[Wait] = field(factory=list)

    async def read(self) -> None:
        """Read the results: to the end, or until each job has one where the source has no end."""
        kind, wanted = self._calls.source, Counter(job.id for job in self._jobs)
        if kind == "silent":
            wanted = Counter(job.id for job in self._jobs[:_SPOKEN])
        raised = 0
        source = source_of(self._run, self._jobs, kind)
        jobs = self._noted(source) if hasattr(source, "__aiter__") else self._noted_plain(source)
        async with self._session.as_completed(jobs, timeout=self._calls.timeout) as results:
            while kind not in {"silent", "endless"} or wanted:
                try:
                    result = await anext(results)
                except StopAsyncIteration:
                    break
                except ValueError:
                    raised += 1
                    continue
                self._ended(result)
                wanted -= Counter([result.ref.job_id])
        if raised > 1:
            self._run.world.violate(f"P12: {self._sender} is told {raised} times that its source has raised")
        if any(wait.ended == inf for wait in self._given) and kind not in {"silent", "endless"}:
            self._run.world.violate(f"P7: {self._sender} has no result of {self._given}")

    def left(self) -> None:
        """Note that the block was left: nothing waits any more."""
        for wait in self._given:
            if wait.ended == inf:
                wait.ended, wait.error = self._run.world.now, asyncio.CancelledError()

    def _ended(self, result: Any) -> None:
        same = [wait for wait in self._given if wait.job_id == result.ref.job_id and wait.ended == inf]
        if not same:
            self._run.world.violate(f"P12: {self._sender} has a result of {result.ref.job_id} that it did not ask for")
            return
        same[0].ended, same[0].job, same[0].error = self._run.world.now, result.job, result.error
        if result.error is not None:
            self._run.check_error(result.error)

    async def _noted(self, source: AsyncIterator[AgentJob]) -> AsyncIterator[AgentJob]:
        async for job in source:
            self._give(job)
            yield job

    def _noted_plain(self, source: Iterable[AgentJob]) -> Iterator[AgentJob]:
        for job in source:
            self._give(job)
            yield job

    def _give(self, job: AgentJob) -> None:
        wait = Wait(self._run.process.name, self._sender, self._run.world.now, self._calls.timeout, job_id=job.id)
        wait.way, wait.label = "stream", job.label
        self._given.append(wait)
        self._run.ledger.waits.append(wait)
