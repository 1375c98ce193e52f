"""The output of a command while it runs: lines for people, or JSON lines for programs."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

from agentjobs_async import AgentJob, JobRef
from agentjobs_async.cli._output.screen import Screen, shortened, styled_status
from agentjobs_async.cli._output.summary import summary_lines
from agentjobs_async.cli.outcomes import Outcome, Result, described

__all__ = ["JsonReport", "PlainReport", "Report", "job_document"]

_LONGEST_LINE: Final = 200  # columns, where there is no terminal
_LEAST_PROMPT: Final = 24  # columns


class Report(Protocol):
    """Shows what happens to each prompt or job; `number` is its position among them, from 1."""

    def running(self, total: int) -> AbstractAsyncContextManager[None]:
        """Return a block that surrounds the run of all prompts or jobs."""
        ...

    def created(self, number: int, prompt: str, job: AgentJob) -> None:
        """Show a new job."""
        ...

    def changed(self, number: int, job: AgentJob) -> None:
        """Show the first known status of a job, and each later one."""
        ...

    def troubled(self, ref: JobRef, error: Exception) -> None:
        """Show that polls of a job currently fail."""
        ...

    def ended(self, result: Result) -> None:
        """Show how one job ended."""
        ...

    def summed_up(self, results: Sequence[Result], exit_code: int) -> None:
        """Show how all jobs ended."""
        ...


class PlainReport:
    """One line per change, a bar below them on a terminal, and a table at the end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._active: set[int] = set()
        self._ended = 0

    @asynccontextmanager
    async def running(self, total: int) -> AsyncIterator[None]:
        """Show the bar."""
        async with self._screen.bar(total):
            yield

    def created(self, number: int, prompt: str, job: AgentJob) -> None:
        """Write the new job's token and its prompt."""
        token = job.ref.to_token()
        room = (self._screen.width or _LONGEST_LINE) - len(f"{token} created: ")
        self._screen.line(token, " ", ("created", "cyan"), f": {shortened(prompt, max(room, _LEAST_PROMPT))}")
        self._moved(active=number)

    def changed(self, number: int, job: AgentJob) -> None:
        """Write the status, unless it is terminal: `ended` shows that one."""
        if not job.is_terminal:
            self._screen.line(job.ref.to_token(), " ", styled_status(job.shown_status))
            self._moved(active=number)

    def troubled(self, ref: JobRef, error: Exception) -> None:
        """Write the error of the last poll."""
        self._screen.line(ref.to_token(), " ", ("no news", "yellow"), f", still polling: {described(error)}")

    def ended(self, result: Result) -> None:
        """Write the outcome with the pull request or the error; a wait that was stopped appears in the table only."""
        self._ended += 1
        self._active.discard(result.number)
        self._moved()
        if result.stopped:
            return
        name = f"prompt {result.number}" if result.ref is None else result.ref.to_token()
        self._screen.line(name, " ", styled_status(result.outcome), _end_of(result))

    def summed_up(self, results: Sequence[Result], exit_code: int) -> None:
        """Show the table."""
        del exit_code
        for line in summary_lines(results, self._screen.width):
            self._screen.line(*line)

    def _moved(self, active: int | None = None) -> None:
        if active is not None:
            self._active.add(active)
        self._screen.advance(self._ended, len(self._active))


class JsonReport:
    """One line of ASCII JSON per event."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    @asynccontextmanager
    async def running(self, total: int) -> AsyncIterator[None]:
        """Show nothing."""
        del total
        yield

    def created(self, number: int, prompt: str, job: AgentJob) -> None:
        """Write the event `created`."""
        self._write("created", job.ref, number=number, prompt=prompt, status=job.status)

    def changed(self, number: int, job: AgentJob) -> None:
        """Write the event `status`."""
        self._write("status", job.ref, number=number, status=job.status)

    def troubled(self, ref: JobRef, error: Exception) -> None:
        """Write the event `trouble`."""
        self._write("trouble", ref, error=described(error))

    def ended(self, result: Result) -> None:
        """Write the event `ended`."""
        self._write(
            "ended",
            result.ref,
            number=result.number,
            prompt=result.prompt,
            outcome=result.outcome,
            status=None if result.job is None else result.job.status,
            pr_link=result.pr_link,
            error=None if result.error is None else described(result.error),
        )

    def summed_up(self, results: Sequence[Result], exit_code: int) -> None:
        """Write the event `summary`."""
        counts = Counter(result.outcome for result in results)
        document = {"event": "summary", "outcomes": counts, "exit_code": exit_code}
        self._screen.raw_line(json.dumps(document))

    def _write(self, event: str, ref: JobRef | None, **fields: Any) -> None:
        self._screen.raw_line(json.dumps({"event": event, "job": None if ref is None else ref.to_token(), **fields}))


def job_document(job: AgentJob) -> dict[str, Any]:
    """Return the job's own document under its token."""
    return {"job": job.ref.to_token(), **job.to_dict()}


def _end_of(result: Result) -> str:
    if result.error is not None:
        return f": {described(result.error)}"
    if result.outcome is not Outcome.COMPLETED:
        return ""
    return f": {result.pr_link}" if result.pr_link else ", no pull request"
