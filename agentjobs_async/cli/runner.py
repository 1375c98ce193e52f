"""Many prompts or jobs at once, on one loop; the failure of one disturbs no other."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    AuthError,
    Event,
    JobPolled,
    JobRef,
    PollFailed,
)
from agentjobs_async.cli._output.reports import Report
from agentjobs_async.cli.outcomes import Result
from agentjobs_async.cli.process import Interruption

__all__ = ["Runner", "SilenceHook", "TroubleHook"]

_SILENCE: Final = 4.0


class Runner:
    """Creates jobs and waits for them, or only waits, and reports each change.

    Args:
        session: Closed when somebody asks to stop: what is under way ends then, each with an error that tells its fate.
        report: Is told of everything.
        interruption: Who may ask to stop.
        timeout: Seconds for each job, its create included; `None` for ever.
    """

    def __init__(
        self, session: AgentJobsSession, report: Report, interruption: Interruption, timeout: float | None
    ) -> None:
        self._session = session
        self._report = report
        self._interruption = interruption
        self._timeout = timeout
        self._any_created = False
        self._key_refused = False

    async def run(self, prompts: Sequence[str], max_active: int) -> list[Result]:
        """Create a job for each prompt and wait for it, at most `max_active` at once."""
        results: dict[int, Result] = {}
        queue = iter(enumerate(prompts, 1))
        await self._all(len(prompts), [self._worker(queue, results) for _ in range(min(max_active, len(prompts)))])
        return [results[number] for number in sorted(results)]

    async def wait(self, refs: Sequence[JobRef]) -> list[Result]:
        """Wait for all of them at once."""
        results: dict[int, Result] = {}
        await self._all(len(refs), [self._wait(number, ref, results) for number, ref in enumerate(refs, 1)])
        return [results[number] for number in sorted(results)]

    async def _all(self, total: int, works: Sequence[Coroutine[Any, Any, None]]) -> None:
        async with self._report.running(total):
            await self._interruption.run_until_stop(asyncio.gather(*works), self._session.aclose)

    async def _worker(self, queue: Iterator[tuple[int, str]], results: dict[int, Result]) -> None:
        for number, prompt in queue:
            await self._run(number, prompt, results)

    async def _run(self, number: int, prompt: str, results: dict[int, Result]) -> None:
        seen = _Seen(self._report, number, prompt)
        error: Exception | None = None
        if self._interruption.exit_code is None and not self._key_refused:
            try:
                await self._session.run_job(prompt, timeout=self._timeout, on_update=seen)
            except Exception as caught:  # noqa: BLE001 - whatever befalls one prompt, the others go on
                error = caught
        self._any_created = self._any_created or seen.job is not None
        # A key that was refused at once is refused for the rest as well: they would all knock in vain.
        self._key_refused = self._key_refused or (isinstance(error, AuthError) and not self._any_created)
        self._end(Result(number, prompt, None if seen.job is None else seen.job.ref, seen.job, error), results)

    async def _wait(self, number: int, ref: JobRef, results: dict[int, Result]) -> None:
        seen = _Seen(self._report, number)
        error: Exception | None = None
        try:
            await self._session.wait_for_job(ref, timeout=self._timeout, on_update=seen)
        except Exception as caught:  # noqa: BLE001 - whatever befalls one job, the others go on
            error = caught
        self._end(Result(number, None, ref, seen.job, error), results)

    def _end(self, result: Result, results: dict[int, Result]) -> None:
        results[result.number] = result
        self._report.ended(result)


class _Seen:
    """Keeps the newest state of one job, and reports it where its status changed."""

    def __init__(self, report: Report, number: int, prompt: str | None = None) -> None:
        self._report = report
        self._number = number
        self._prompt = prompt
        self.job: AgentJob | None = None

    def __call__(self, job: AgentJob) -> None:
        previous, self.job = self.job, job
        if previous is None and self._prompt is not None:
            self._report.created(self._number, self._prompt, job)
        elif previous is None or previous.status != job.status:
            self._report.changed(self._number, job)


class SilenceHook:
    """Calls `notice` once when nothing at all was heard of the service for a while.

    Creates that can't be sent are repeated in silence until their time is up.
    """

    def __init__(self, notice: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SILENCE, notice)

    def __call__(self, event: Event, /) -> None:
        """Record any event as a sign of life."""
        del event
        self._timer.cancel()


class TroubleHook:
    """Reports a job whose reads failed twice in a row, once until one succeeds."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._failures: dict[JobRef, int] = {}

    def __call__(self, event: Event, /) -> None:
        """Record a poll."""
        match event:
            case PollFailed(ref, Exception() as error):
                self._failures[ref] = self._failures.get(ref, 0) + 1
                if self._failures[ref] == 2:  # noqa: PLR2004 - one failure alone is often over when it is read
                    self._report.troubled(ref, error)
            case JobPolled(job):
                self._failures.pop(job.ref, None)
