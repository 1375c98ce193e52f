"""The commands `run` and `resume`: the items of a journal are sent and waited for, to the end."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import click
from attrs import frozen

from agentjobs_async import AgentJobsSession, InvalidInputError
from agentjobs_async._dialect.body import BodyTemplate
from agentjobs_async._extra import checked_extra
from agentjobs_async.batch import Batch, BatchItem, InvalidItems, Journal, State, Where, run_batch
from agentjobs_async.batch.states import FAILED
from agentjobs_async.cli._input import own_journals
from agentjobs_async.cli._input.limits import kept_limits
from agentjobs_async.cli._input.options import (
    COUNT,
    JSON_OPTION,
    LIMIT,
    LIMITS,
    TEXT,
    WRITTEN_FILE,
    YES_OPTION,
    input_options,
    journal_argument,
    limit_options,
    tries_options,
)
from agentjobs_async.cli._input.prompts import InvalidPrompt, Prompts, show_all_invalid
from agentjobs_async.cli._input.questions import can_ask, confirmed
from agentjobs_async.cli._input.service import Service, check_service
from agentjobs_async.cli._input.service_options import OTHER_SERVICE, service_options
from agentjobs_async.cli._output.endings import HowItRuns
from agentjobs_async.cli._output.hints import lost_jobs
from agentjobs_async.cli._output.lines import ItemLines, JobLines, JsonLines, Lines
from agentjobs_async.cli._output.logs import LogLines
from agentjobs_async.cli._output.notices import show_hints
from agentjobs_async.cli._output.outcomes import ExitCode, Outcome
from agentjobs_async.cli._output.results import Result
from agentjobs_async.cli._output.screen import Drawn, Screen, drawn
from agentjobs_async.cli.display import RunDisplay
from agentjobs_async.cli.ending import Ending
from agentjobs_async.cli.help import RUN_PAGE, command
from agentjobs_async.cli.hooks import OpenJobs, SilenceHook
from agentjobs_async.cli.plan import sending_of, show_sending
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.cli.report import ReportFile

_MOST_UNASKED: Final = 100  # creates that a terminal is not asked about
_AT_ONCE: Final = 500  # planned in one commit; half a second at the most until it can be stopped
_RETRY_FAILED: Final = (
    "Try failed and rejected items again. The exit code is 4 while the same command would try some once more."
)
_QUIET_SECONDS: Final = 5.0  # a log gets no more lines of the planning than these


def _run_options(command: Callable[..., int]) -> Any:
    """Add the options that `run` and `resume` share."""
    for option in reversed(
        (
            limit_options(**LIMITS),
            click.option("--max-failures", metavar="N", type=COUNT, help="Start no more items after N failures."),
            LIMIT,
            tries_options(_RETRY_FAILED),
            click.option(
                "--report",
                metavar="FILE",
                type=WRITTEN_FILE,
                help="Write a report at the end, in the format of its suffix: see agentjobs report.",
            ),
            service_options(emulator=True),
            OTHER_SERVICE,
            JSON_OPTION,
        )
    ):
        command = option(command)
    return command


@command("run", RUN_PAGE, "agentjobs run --emulator 'Document the v2 endpoints'")
@input_options
@click.option("--journal", metavar="FILE|URL", type=TEXT, help="Record there what is sent and how it ends.")
@YES_OPTION
@_run_options
def run(prompts: Prompts, journal: str | None, *, is_confirmed: bool, **how: Any) -> int:
    """Create a job for each PROMPT and wait for all of them; one that fails leaves the others alone.

    A line of the file is a prompt, or a JSON object with a prompt and, optionally, a key, a project and an extra: more
    fields of its create. --prompt makes the prompts from the columns of a table, or from the fields of JSON objects;
    --extra makes more fields of the creates in the same way.

    A journal records what was sent and how it ended, whatever ends this command. Without --journal, the run makes a
    journal of its own, and removes it when all jobs have ended. Otherwise the journal is kept: agentjobs status lists
    it, and agentjobs resume continues it.
    """
    plan = {name: how[name] for name in ("limits", "limit", "max_tries")}
    plan["project_id"] = how["service"].default_project
    if not is_confirmed:
        code = _asked(prompts, journal, **plan)
        if code != ExitCode.COMPLETED:
            return code
    return run_action(lambda context: _run(context, prompts, journal, **how))


def _asked(prompts: Prompts, journal: str | None, limits: Mapping[str, Any], **what: Any) -> int:
    """Ask whether to start what looks like a mistake or is a lot; return an exit code other than 0 for a fault.

    Raises:
        InvalidInputError: The prompts are not to be started.
    """
    if prompts.lone_words:  # which forgotten quotes look like
        words = f"{prompts.lone_words} prompts of one word each would start {prompts.lone_words} agents"
        if not confirmed(f"{words}. Start them?"):
            raise InvalidInputError(f"{words}: put a prompt of several words in quotes, or say --yes")
    if not can_ask():
        return ExitCode.COMPLETED
    is_large = False

    async def show(context: Context) -> int:
        nonlocal is_large
        sending = await sending_of(prompts, journal, **what)
        is_large = len(sending.items) > _MOST_UNASKED
        if is_large:
            show_sending(context.screen, prompts, sending, limits)
        return ExitCode.COMPLETED

    code = run_action(show)
    if is_large and not confirmed("Start them?"):
        raise InvalidInputError("nothing was sent")
    return code


@command("resume", RUN_PAGE, "agentjobs resume run.db --retry-failed --max-tries 3")
@journal_argument("The journal of an earlier run.", "agentjobs resume FILE; agentjobs status lists those that are left")
@_run_options
def resume(journal: str, **how: Any) -> int:
    """Continue where a run stopped, with the journal FILE.

    What was planned is sent, what is active is waited for. What was being sent when that run ended is unknown: it is
    listed, and not sent again; see agentjobs resolve.
    """
    return run_action(lambda context: _run(context, Prompts((), ()), journal, **how))


async def _run(
    context: Context,
    prompts: Prompts,
    journal: str | None,
    *,
    service: Service,
    limits: Mapping[str, Any],
    max_tries: int | None,
    report: str | None,
    as_json: bool,
    other_service: bool,
    **settings: Any,
) -> int:
    """Plan the prompts and run the journal to its end; `settings` are those of `run_batch`.

    The session is made before the journal is opened: invalid options leave no file.
    """
    if any(item.project_id is None for item in prompts.items):
        service.creating()
    screen = context.screen
    async with AsyncExitStack() as stack:
        stack.enter_context(LogLines(screen, "agentjobs_async.batch", level=logging.CRITICAL).shown())
        report_file = None if report is None else ReportFile.of(report)
        is_own = journal is None or own_journals.is_own(journal)
        lines = _lines_of(screen, as_json=as_json, is_own=is_own)
        display, jobs = RunDisplay(screen, lines), OpenJobs()
        silence = SilenceHook(lambda: display.show_silence(service.base_url))
        session = await stack.enter_async_context(service.session(screen.notice, hooks=[*display.hooks, jobs, silence]))
        location = journal or stack.enter_context(own_journals.new_journal(temporary=service.emulated))
        opened = await stack.enter_async_context(own_journals.open_for_run(location, own=is_own, max_tries=max_tries))
        await check_service(session, opened, screen.notice, other_service=other_service)
        await _say_lost_jobs(screen, service, opened)
        kept = await kept_limits(screen, opened, limits)
        to_wait = service.wait_options(kept.timeout, as_json=as_json)
        to_resume = _to_resume(service, max_failures=settings["max_failures"], report=report, as_json=as_json)
        how = HowItRuns(opened.address, is_own, to_resume, to_wait, max_tries)
        ending = Ending(context, opened, how, jobs, lines, display)
        context.interruption.last_words.append(ending.last_words)
        if report_file is not None:  # whatever ends the run, and before the journal is closed
            stack.push_async_callback(report_file.write_at_the_end, opened, screen)
        open_run = _Run(context, session, opened, display, ending, settings)
        return await open_run.to_the_end(await open_run.plan(prompts))


def _lines_of(screen: Screen, *, as_json: bool, is_own: bool) -> Lines:
    """Return what shows the run: with a journal of its own, which goes with it, a table at the end as well."""
    if as_json:
        return JsonLines(screen)
    return JobLines(screen) if is_own else ItemLines(screen)


async def _say_lost_jobs(screen: Screen, service: Service, journal: Journal) -> None:
    """Show how many jobs of the journal ended with an earlier emulator, where this command has one of its own."""
    if service.emulated:
        show_hints(screen, lost_jobs((await journal.counts())[State.ACTIVE]))


def _to_resume(service: Service, *, max_failures: int | None, report: str | None, as_json: bool) -> list[str]:
    """Return the options with which `agentjobs resume` continues in the same way; the journal keeps the limits."""
    options = [*service.options()]
    if max_failures is not None:
        options += ["--max-failures", str(max_failures)]
    if report is not None:
        options += ["--report", report]
    if as_json:
        options += ["--json"]
    return options


@frozen
class _Run:
    """A run whose session and journal are open."""

    context: Context
    session: AgentJobsSession
    journal: Journal
    display: RunDisplay
    ending: Ending
    settings: Mapping[str, Any]

    async def plan(self, prompts: Prompts) -> list[InvalidPrompt]:
        """Plan the prompts; show and return those that are refused."""
        items, invalid = _fitting(prompts.items, BodyTemplate(self.session.dialect.body))
        try:
            invalid += await _planned(
                self.context.screen, self.journal, items, self.session.project_id, lasts=not self.ending.how.is_own
            )
        except asyncio.CancelledError:
            if self.ending.how.is_own:  # nothing was sent, and the same command plans all of them again
                own_journals.remove(self.journal.address)
            raise
        return show_all_invalid(self.context.screen, prompts, invalid)

    async def to_the_end(self, invalid: Sequence[InvalidPrompt]) -> int:
        """Run the journal to its end, and return the exit code."""
        if self.ending.how.max_tries != 1:
            await self.journal.retry(where=Where(states=FAILED), max_tries=self.ending.how.max_tries)
        if isinstance(self.ending.lines, JsonLines):  # people have read them already
            for prompt in invalid:
                self.ending.lines.end(Result(None, Outcome.REFUSED, prompt.key, error=prompt.words))
        fault: Exception | None = None
        try:
            await self._show_results()
        except Exception as error:  # noqa: BLE001 - whatever it is, what the journal has is shown before
            fault = error
        return await self.ending.show(len(invalid), fault)

    async def _show_results(self) -> None:
        async with run_batch(self.session, (), journal=self.journal, **self.settings) as batch:
            await self.context.interruption.run_until_stop(self._show_each(batch), lambda: self._stop(batch))

    async def _show_each(self, batch: Batch) -> None:
        async with self.display.shown(batch, self.journal):
            async for result in batch:
                self.display.show_result(result)

    async def _stop(self, batch: Batch) -> None:
        sending = sum(item.state is State.SENDING for item in batch.active())
        if sending:
            self.context.screen.notice(
                f"Stopping: up to 10 s for the answers of creates under way ({sending}); Ctrl-C again ends at once, and"
                " leaves them unknown."
            )
        await batch.aclose()


def _fitting(items: Iterable[BatchItem], body: BodyTemplate) -> tuple[list[BatchItem], InvalidItems]:
    """Return the items whose extra has a place in the body of a create, and the others with the reason."""
    good: list[BatchItem] = []
    invalid: InvalidItems = []
    for item in items:
        try:
            checked_extra(item.extra or {}, fields=body.taken)
        except InvalidInputError as error:
            invalid.append((item, error))
        else:
            good.append(item)
    return good, invalid


async def _planned(
    screen: Screen, journal: Journal, items: Sequence[BatchItem], project_id: str | None, *, lasts: bool
) -> InvalidItems:
    """Plan all items and return the invalid ones; show the progress, in a log every 5 s.

    Args:
        screen: The screen to write to.
        journal: The open journal.
        items: The items to plan.
        project_id: The project of those that name none.
        lasts: Whether the journal outlives a signal that stops the planning.

    Raises:
        CancelledError: A signal stopped it; the screen shows how many items are planned.
    """
    progress = _Progress(screen, len(items))
    invalid: InvalidItems = []
    try:
        async with screen.live_view(progress.view):
            for at in range(0, len(items), _AT_ONCE):
                invalid += await journal.add(items[at : at + _AT_ONCE], project_id=project_id)
                progress.came_to(min(at + _AT_ONCE, len(items)))
    except asyncio.CancelledError:
        planned = f"at least {progress.words}. The same command again plans the rest and continues"
        screen.notice(f"Nothing was sent; {planned if lasts else 'no journal is kept'}.")
        raise
    return invalid


class _Progress:
    def __init__(self, screen: Screen, total: int) -> None:
        self._screen = screen
        self._total = total
        self._done = 0
        self._clock = asyncio.get_running_loop().time
        self._last_line_at = self._clock()

    @property
    def words(self) -> str:
        return f"{self._done:,} of {self._total:,} are planned"

    def came_to(self, done: int) -> None:
        self._done = done
        if not self._screen.shows_live_view and self._clock() - self._last_line_at >= _QUIET_SECONDS:
            self._last_line_at = self._clock()
            self._screen.notice(f"{self.words} …")

    def view(self, width: int, height: int) -> list[Drawn]:
        del width, height
        return [drawn(self.words)]
