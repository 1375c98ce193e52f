"""The commands `retry` and `resolve`: what a person decides about items that have ended, or are unknown."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, State, Where
from agentjobs_async.batch._service import options_to
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.settling import abandoned_where
from agentjobs_async.cli._input.options import MAX_TRIES, TEXT, YES_OPTION, filter_options, journal_before_keys
from agentjobs_async.cli._input.questions import can_ask, confirmed
from agentjobs_async.cli._output.columns import in_words
from agentjobs_async.cli._output.endings import tally
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.outcomes import ExitCode, described
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.commands import found_job

_NO_JOBS: Final = {"send-again", "abandon"}  # words of options; a job of such a name has a token


@command(
    "retry",
    journal_exit_codes("all of them are planned again", "some keys were refused"),
    "agentjobs retry run.db --state failed --max-tries 3",
)
@journal_before_keys("agentjobs retry FILE --state failed", "[KEY]...")
@filter_options
@MAX_TRIES
def retry(journal: str, keys: Sequence[str], where: Where, max_tries: int | None) -> int:
    """Plan items again that failed, or were archived or rejected: those of each KEY, or all that meet the options.

    agentjobs resume, or a worker that runs, sends them.
    """
    if bool(keys) == (where != Where()) or (keys and max_tries):
        raise InvalidInputError("give either KEY..., or which items, such as --state failed")
    if keys:
        return run_action(lambda context: _retry_keys(context, journal, keys))
    return run_action(lambda context: _retry_items(context, journal, where, max_tries))


async def _retry_keys(context: Context, journal: str, keys: Sequence[str]) -> int:
    """Plan the items of these keys again; show why one can't be."""
    planned = 0
    async with Journal.open(journal) as opened:
        for key in keys:
            try:
                await opened.retry(key)
            except InvalidInputError as error:
                context.screen.notice(f"{key} ", ("refused", "bold red"), f": {described(error)}")
            else:
                planned += 1
        await _show_planned(context, opened, journal, planned)
    return ExitCode.COMPLETED if planned == len(keys) else ExitCode.FAILED


async def _retry_items(context: Context, journal: str, where: Where, max_tries: int | None) -> int:
    """Plan all items again that meet `where`."""
    async with Journal.open(journal) as opened:
        await _show_planned(context, opened, journal, len(await opened.retry(where=where, max_tries=max_tries)))
    return ExitCode.COMPLETED


async def _show_planned(context: Context, journal: Journal, given: str, planned: int) -> None:
    """Show how many were planned, and what sends them; `given` is the journal as the command was given it."""
    them = _them(planned)
    if not planned:
        context.screen.notice("0 items planned again.")
    elif journal.is_shared:  # its address may hold a password, which no command shows
        context.screen.notice(
            f"{_items(planned)} planned again; a worker that runs, or agentjobs resume, sends {them}."
        )
    else:
        context.screen.notice(f"{_items(planned)} planned again. Send {them} with:")
        options = options_to((await journal.store.meta()).service)
        context.screen.command(f"  {resume_command(given, options)}")


def _them(number: int) -> str:
    return "it" if number == 1 else "them"


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number:,} items"


@command(
    "resolve",
    journal_exit_codes("it is settled, or all of them are abandoned"),
    "agentjobs resolve run.db page-7 --send-again",
)
@journal_before_keys("agentjobs resolve FILE KEY --job JOB", "[KEY]")
@click.option(
    "--job",
    metavar="JOB",
    type=TEXT,
    help="The job that you found: its id, or its token project~.job. resume waits for it.",
)
@click.option("--send-again", is_flag=True, help="It has no job, or a second job does no harm: resume creates one.")
@click.option("--abandon", is_flag=True, help="Withdraw it, or give it up, whatever became of its job.")
@filter_options
@YES_OPTION
def resolve(
    journal: str,
    keys: Sequence[str],
    job: str | None,
    where: Where,
    *,
    send_again: bool,
    abandon: bool,
    is_confirmed: bool,
) -> int:
    """Settle the item KEY, which may have started an agent: look at the project first.

    agentjobs status names the project, and the time at which the item was sent: about that of its job, if it has one.

    --abandon also withdraws an item that is planned, and ends one whose job can't be read any more; only retry KEY
    sends it again. Instead of KEY, options such as --prefix and --project withdraw all planned items that meet them;
    with --state, also active or unknown ones. How many they are is asked first; without a terminal, it needs --yes.

    Another --job corrects a wrong one, until that was seen to end.
    """
    if [job is not None, send_again, abandon].count(True) != 1:
        raise InvalidInputError("give either --job ID or --send-again, or --abandon")
    if where != Where():
        if keys or not abandon:
            raise InvalidInputError("options that name items are for --abandon without a KEY")
        return _abandon_items(journal, where, is_confirmed=is_confirmed)
    if len(keys) != 1:
        raise InvalidInputError("give the journal and the KEY of one item, or with --abandon which items")
    if job in _NO_JOBS:
        raise InvalidInputError(f"--job names a job: say --{job}, or write project~.job")
    if abandon:
        return run_action(lambda context: _abandon(context, journal, keys[0]))
    return run_action(lambda context: _resolve(context, journal, keys[0], job))


def _abandon_items(journal: str, where: Where, *, is_confirmed: bool) -> int:
    """Abandon all items that meet `where`, once a person has agreed to their number."""
    counts = Counter[State]()
    if not is_confirmed:
        code = run_action(lambda context: _count(context, journal, abandoned_where(where), counts))
        if code or not counts:
            return code
        words = f"{_items(counts.total())} would be abandoned: {tally(counts)}"
        if not can_ask():
            raise InvalidInputError(f"{words}; say --yes to do it without a terminal")
        if not confirmed(f"{words}. Abandon {_them(counts.total())}?"):
            raise InvalidInputError("nothing was abandoned")
    return run_action(lambda context: _abandon_all(context, journal, where))


async def _count(context: Context, journal: str, where: Where, counts: Counter[State]) -> int:
    """Count the items that meet `where` into `counts`, by their states; say so where there are none."""
    async with Journal.open(journal, read_only=True) as opened:
        found = await measures.counts(opened.store, Query(where=where))
    counts.update({state: number for state, number in found.items() if number})
    if not counts:
        context.screen.notice("0 items abandoned.")
    return ExitCode.COMPLETED


async def _abandon_all(context: Context, journal: str, where: Where) -> int:
    async with Journal.open(journal) as opened:
        number = len(await opened.abandon(where=where))
    if not number:
        context.screen.notice("0 items abandoned.")
        return ExitCode.COMPLETED
    context.screen.notice(f"{_items(number)} abandoned: nothing is sent, and an agent at work continues.")
    context.screen.notice(f"To plan {'it' if number == 1 else 'one of them'} again, use agentjobs retry with its key.")
    return ExitCode.COMPLETED


async def _abandon(context: Context, journal: str, key: str) -> int:
    async with Journal.open(journal) as opened:
        await opened.abandon(key)
    context.screen.notice(f"{in_words(key)} is abandoned: nothing is sent, and an agent at work continues.")
    context.screen.notice("To plan it again, use agentjobs retry with its key.")
    return ExitCode.COMPLETED


async def _resolve(context: Context, journal: str, key: str, job: str | None) -> int:
    """Settle an item by its job; without one, by another create."""
    async with Journal.open(journal) as opened:
        if job is None:
            await opened.resolve(key, send_again=True)
        else:
            await opened.resolve(key, job_id=found_job(job))
    done = "is planned again" if job is None else "has its job"
    by_whom = "a running worker, or agentjobs resume," if opened.is_shared else "agentjobs resume"
    context.screen.notice(f"{in_words(key)} {done}; {by_whom} continues with it.")
    return ExitCode.COMPLETED
