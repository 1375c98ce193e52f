"""What each command does, as a coroutine that gives the exit code."""

import json
from collections.abc import Sequence
from math import inf
from typing import Final

from attrs import frozen

from agentjobs_async import AgentJob, HttpTimeouts, JobSource
from agentjobs_async.cli._output.hints import show_leftovers
from agentjobs_async.cli._output.reports import JsonReport, PlainReport, Report, job_document
from agentjobs_async.cli._output.screen import styled_status
from agentjobs_async.cli.outcomes import ExitCode, Result, exit_code
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.runner import Runner, SilenceHook, TroubleHook
from agentjobs_async.cli.service import Service

__all__ = ["DEFAULT_ACTIVE", "DEFAULT_TIMEOUT", "Options", "create_job", "get_job", "run_prompts", "wait_for_jobs"]

DEFAULT_ACTIVE: Final = 20
DEFAULT_TIMEOUT: Final = 1800.0
"""Seconds that each job of `run` and `wait` may take."""


@frozen
class Options:
    """What several commands have in common.

    Attributes:
        service: Where to.
        timeout: Seconds; `None` for ever.
        machine: Whether a machine reads the output.
    """

    service: Service
    timeout: float | None
    machine: bool

    def report(self, context: Context) -> Report:
        """Return what tells of the command's progress."""
        return JsonReport(context.screen) if self.machine else PlainReport(context.screen)

    def wait_options(self) -> list[str] | None:
        """Return the options of an `agentjobs wait` for the same service; `None` when the service ends with us."""
        if self.service.emulated:
            return None
        patience = "none" if self.timeout is None else repr(self.timeout).removesuffix(".0")
        timeout = [] if self.timeout == DEFAULT_TIMEOUT else ["--timeout", patience]
        return [*self.service.options(), *timeout, *["--json"] * self.machine]


async def run_prompts(context: Context, order: Options, prompts: Sequence[str], max_active: int) -> int:
    """Create a job for each prompt and wait for all of them."""
    report = order.report(context)
    service = order.service.creating()
    hooks = [TroubleHook(report), _silence_hook(context, order)]
    async with service.session(context.screen.notice, hooks=hooks) as session:
        results = await Runner(session, report, context.interruption, order.timeout).run(prompts, max_active)
        return _summed_up(context, order, report, results)


async def wait_for_jobs(context: Context, order: Options, jobs: Sequence[str]) -> int:
    """Wait for all jobs; one named twice is waited for once."""
    report = order.report(context)
    refs = list(dict.fromkeys(map(order.service.ref, jobs)))
    async with order.service.session(context.screen.notice, hooks=[TroubleHook(report)]) as session:
        results = await Runner(session, report, context.interruption, order.timeout).wait(refs)
        return _summed_up(context, order, report, results)


async def create_job(context: Context, order: Options, prompt: str) -> int:
    """Create one job and write its token."""
    service = order.service.creating()
    async with service.session(context.screen.notice, hooks=[_silence_hook(context, order)]) as session:
        creating = session.create_job(prompt, timeout=order.timeout or inf)
        job = await context.interruption.run_until_stop(creating, session.aclose)
    token = job.ref.to_token()
    context.screen.raw_line(json.dumps(job_document(job)) if order.machine else token)
    if context.interruption.exit_code is not None:
        context.screen.notice(f"The job was created: {token}")
    return ExitCode.COMPLETED


async def get_job(context: Context, order: Options, job: str) -> int:
    """Read one job and write what it is like."""
    seconds = order.timeout or inf
    ref = order.service.ref(job)
    timeouts = HttpTimeouts(connect=min(seconds, HttpTimeouts().connect), request=seconds)
    async with order.service.session(context.screen.notice, timeouts=timeouts) as session:
        found = await context.interruption.run_until_stop(session.get_job(ref), session.aclose)
    if order.machine:
        context.screen.raw_line(json.dumps(job_document(found)))
    else:
        _show(context, found)
    return ExitCode.COMPLETED


def _silence_hook(context: Context, order: Options) -> SilenceHook:
    words = f"No answer from {order.service.base_url} so far; still trying."
    return SilenceHook(lambda: context.screen.notice(words))


def _summed_up(context: Context, order: Options, report: Report, results: Sequence[Result]) -> int:
    stopped_with = context.interruption.exit_code
    code = exit_code(results) if stopped_with is None else stopped_with
    report.summed_up(results, code)
    show_leftovers(context.screen, results, order.wait_options(), stopped=stopped_with is not None)
    return code


def _show(context: Context, job: AgentJob) -> None:
    source = job.source or JobSource()
    moments = {"created": job.created_at, "archived": job.archived_at}
    rows: dict[str, str | None] = {
        "pull request": job.pr_link,
        "repository": source.repository,
        "ref": source.ref,
        "model": job.model,
        **{name: None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC" for name, moment in moments.items()},
    }
    context.screen.line(f"{'job':<14}{job.ref.to_token()}")
    context.screen.line(f"{'status':<14}", styled_status(job.shown_status))
    for name, value in rows.items():
        context.screen.line(f"{name:<14}{value or '-'}")
