"""The commands that need no journal: `create`, `get` and `wait`."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import click
from attrs import evolve

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    AuthError,
    Estimate,
    HttpTimeouts,
    JobRef,
    JobSource,
    NotFoundError,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async._text import shown_status
from agentjobs_async.cli._input.options import JSON_OPTION, extra_option, timeout_option
from agentjobs_async.cli._input.prompts import checked_prompts
from agentjobs_async.cli._input.service import DEFAULT_TIMEOUT, Service
from agentjobs_async.cli._input.service_options import service_options
from agentjobs_async.cli._output.hints import advices, continuing_jobs
from agentjobs_async.cli._output.lines import JobLines, JsonLines, Lines
from agentjobs_async.cli._output.notices import show_hints
from agentjobs_async.cli._output.outcomes import ExitCode, Outcome, advice_of, exit_code, reason_of
from agentjobs_async.cli._output.results import Change, Result, job_document
from agentjobs_async.cli._output.screen import Drawn, Screen, drawn, styled_status
from agentjobs_async.cli.help import WAIT_PAGE, command, exit_codes
from agentjobs_async.cli.hooks import JobChanges, SilenceHook
from agentjobs_async.cli.process import Context, run_action


@command(
    "create",
    exit_codes("the job was created", "the service refused it", "nothing was sent, or an agent may have been started"),
    "agentjobs create 'Document the v2 endpoints'",
)
@click.argument("prompt")
@extra_option
@timeout_option(120.0, "Give up after this long, retries included.")
@service_options()
@JSON_OPTION
def create(prompt: str, extra: Mapping[str, Any], service: Service, timeout: float, *, as_json: bool) -> int:
    """Create a job for PROMPT and print its token project~.job, without waiting for it."""
    (checked,) = checked_prompts((prompt,), "agentjobs run --file")
    return run_action(lambda context: _create(context, service, checked, extra, timeout, as_json=as_json))


async def _create(
    context: Context, service: Service, prompt: str, extra: Mapping[str, Any], seconds: float, *, as_json: bool
) -> int:
    words = f"No answer from {service.creating().base_url} so far; still trying."

    def show_silence() -> bool:
        context.screen.notice(words)
        return True

    async with service.session(context.screen.notice, hooks=[SilenceHook(show_silence)]) as session:
        creating = session.create_job(prompt, timeout=seconds, extra=extra or None)
        job = await context.interruption.run_until_stop(creating, session.aclose)
    token = job.ref.to_token()
    if as_json:
        context.screen.json_lines([job_document(job)])
    else:
        context.screen.raw_line(token)
    if context.interruption.exit_code is not None:
        context.screen.notice(f"The job was created: {token}")
    return ExitCode.COMPLETED


@command(
    "get",
    exit_codes("the job was read", None, "it can't be read, or does not exist"),
    "agentjobs get docs~.job_1",
)
@click.argument("job")
@timeout_option(30.0, "For the response.")
@service_options()
@JSON_OPTION
def get(job: str, service: Service, timeout: float, *, as_json: bool) -> int:
    """Read JOB once: a token project~.job, or the id of a job in --project.

    The exit code is 0 when it could be read, whatever its status.
    """
    return run_action(lambda context: _get(context, service, job, timeout, as_json=as_json))


async def _get(context: Context, service: Service, job: str, seconds: float, *, as_json: bool) -> int:
    ref = service.ref(job)
    timeouts = HttpTimeouts(connect=min(seconds, HttpTimeouts().connect), request=seconds)
    async with service.session(context.screen.notice, timeouts=timeouts) as session:
        found = await context.interruption.run_until_stop(session.get_job(ref), session.aclose)
    if as_json:
        context.screen.json_lines([job_document(found)])
    else:
        _show(context.screen, found)
    return ExitCode.COMPLETED


def _show(screen: Screen, job: AgentJob) -> None:
    source = job.source or JobSource()
    moments = {"created": job.created_at, "archived": job.archived_at}
    rows: dict[str, str | None] = {
        "pull request": job.pr_link,
        "repository": source.repository,
        "ref": source.ref,
        "model": job.model,
        **{name: None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC" for name, moment in moments.items()},
    }
    screen.line(f"{'job':<14}{job.ref.to_token()}")
    screen.line(f"{'status':<14}", styled_status(shown_status(job.status)))
    for name, value in rows.items():
        screen.line(f"{name:<14}{value or '-'}")


@command("wait", WAIT_PAGE, "agentjobs wait docs~.job_1 --timeout 600")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@timeout_option(DEFAULT_TIMEOUT, "For each job; none waits for ever.", endless="to wait for ever")
@service_options()
@JSON_OPTION
def wait(jobs: Sequence[str], service: Service, timeout: float | None, *, as_json: bool) -> int:
    """Wait until every JOB has ended: tokens project~.job, or ids of jobs in --project.

    Once 20 jobs have ended, it shows when the others will.
    """
    refs = list(dict.fromkeys(map(service.ref, jobs)))
    to_wait = service.wait_options(timeout, as_json=as_json)

    async def waiting(context: Context) -> int:
        lines = JsonLines(context.screen) if as_json else JobLines(context.screen)
        return await _wait(context, service, _Waits(context, lines, refs, timeout, to_wait))

    return run_action(waiting)


async def _wait(context: Context, service: Service, waits: "_Waits") -> int:
    """Wait for all jobs, once for each; estimate how long they have left by the durations of those that have ended."""
    screen = context.screen
    async with service.session(screen.notice, hooks=[waits.changes]) as session:
        session.learn_from({})
        async with screen.live_view(waits.view):
            await context.interruption.run_until_stop(waits.run(session), session.aclose)
    return waits.summed_up()


class _Waits:
    """The waits for several jobs; the failure of one leaves the others alone."""

    def __init__(
        self,
        context: Context,
        lines: Lines,
        refs: Sequence[JobRef],
        timeout: float | None,
        to_wait: Sequence[str] | None,
    ) -> None:
        self._context = context
        self._lines = lines
        self._timeout = timeout
        self._to_wait = to_wait
        self._numbers = {ref: number for number, ref in enumerate(refs, 1)}
        self._results: dict[JobRef, Result] = {}
        self._errors: dict[JobRef, Exception] = {}
        self._started = time.monotonic()
        self._session: AgentJobsSession | None = None
        self.changes = JobChanges(self._change)

    async def run(self, session: AgentJobsSession) -> None:
        """Wait for all jobs at once."""
        self._session = session
        await asyncio.gather(*(self._wait(session, ref) for ref in self._numbers))

    def view(self, width: int, height: int) -> Iterator[Drawn]:
        """Return the live view: how many have ended, and as far as it is known, when each of the others will."""
        del width
        seconds = int(time.monotonic() - self._started)
        done = sum(not result.outcome.is_unfinished for result in self._results.values())
        ended = f"{done} of {len(self._numbers)} ended"
        yield drawn(f"{ended}, {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}")
        for ref, left in islice(self._time_left(), max(height - 1, 0)):
            yield drawn(f"{ref.to_token()} ends in {left}")

    def summed_up(self) -> int:
        """Show all results and the jobs that continue, and return the exit code."""
        screen, stopped_with = self._context.screen, self._context.interruption.exit_code
        results = sorted(self._results.values(), key=lambda result: result.number or 0)
        outcomes = Counter(result.outcome for result in results)
        refused = next((error for error in self._errors.values() if isinstance(error, AuthError)), None)
        code = exit_code(outcomes, refused) if stopped_with is None else stopped_with
        self._lines.all_results(results)
        self._lines.summary(outcomes, code)
        show_hints(screen, advices(Counter(result.advice for result in results if result.advice)))
        if stopped_with is not None:
            screen.notice("Stopped waiting.")
        refs = [ref for ref in self._numbers if self._continues(ref)]
        is_in_doubt = any(self.changes.last_job(ref) is None for ref in refs)
        show_hints(screen, continuing_jobs(refs, self._to_wait, is_in_doubt=is_in_doubt))
        return code

    def _time_left(self) -> Iterator[tuple[JobRef, Estimate]]:
        """Return how long each job has left that was seen and has not ended, where the last poll has shown it."""
        for ref in self._numbers:
            if ref not in self._results and (left := self._left(ref)) is not None:
                yield ref, left

    def _left(self, ref: JobRef) -> Estimate | None:
        if self._session is None or not self.changes.is_seen(ref):
            return None
        return self._session._time_left(ref)  # noqa: SLF001 - private to users

    def _change(self, change: Change) -> None:
        is_active = change.job is not None and not change.job.is_terminal
        self._lines.change(evolve(change, left=self._left(change.ref) if is_active else None))

    async def _wait(self, session: AgentJobsSession, ref: JobRef) -> None:
        error: Exception | None = None
        try:
            await session.wait_for_job(ref, timeout=self._timeout)
        except Exception as caught:  # noqa: BLE001 - whatever one job's wait raises, the others continue
            error = self._errors[ref] = caught
        self._results[ref] = self._result(ref, error)
        if not isinstance(error, SessionClosedError):  # a wait that was only stopped is among all results
            self._lines.end(self._results[ref])

    def _result(self, ref: JobRef, error: Exception | None) -> Result:
        job = self.changes.last_job(ref)
        # Where the key is refused, nothing speaks against the job.
        is_in_doubt = job is None and not isinstance(error, AuthError)
        open_outcome = Outcome.UNKNOWN if is_in_doubt else Outcome.ACTIVE
        if isinstance(error, WaitTimeoutError):
            open_outcome = Outcome.TIMED_OUT
        return Result(
            self._numbers[ref],
            Outcome(job.status) if job is not None and job.is_terminal else open_outcome,
            ref=ref,
            status=None if job is None else job.status,
            pr_link=None if job is None else job.pr_link,
            error=None if error is None else reason_of(error),
            advice="" if error is None or isinstance(error, WaitTimeoutError) else advice_of(error),
        )

    def _continues(self, ref: JobRef) -> bool:
        return self._results[ref].outcome.is_unfinished and not isinstance(self._errors.get(ref), NotFoundError)
