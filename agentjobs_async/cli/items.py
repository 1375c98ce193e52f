"""The commands `retry` and `resolve`: what a person decides about items that have ended, or are unknown."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click
from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.batch import Journal, Where
from agentjobs_async.batch._planning import retried
from agentjobs_async.batch._service import options_to
from agentjobs_async.cli._input.options import MAX_TRIES, TEXT, filter_options, journal_before_keys
from agentjobs_async.cli._input.records import Record, apparent_format, read_text, records_of
from agentjobs_async.cli._output.columns import in_words
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.lines import show_rows
from agentjobs_async.cli._output.outcomes import ExitCode, described
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.commands import found_job

_SEND_AGAIN: Final = "send-again"
_ABANDON: Final = "abandon"
_OPTION: Final = "--from"
_DONE: Final = {_SEND_AGAIN: "planned again", _ABANDON: "abandoned"}
_NAMES: Final = {"key", "job"}
_WITH_JOB: Final = "with their jobs"


@frozen
class _Resolution:
    """What a line of the file says.

    Attributes:
        place: Where it is, such as `line 7`.
        key: The key of its item.
        what: A job's id or token, `send-again` or `abandon`.
        defect: Why it can't be read; empty if it can.
    """

    place: str
    key: str = ""
    what: str = ""
    defect: str = ""


@command(
    "retry",
    journal_exit_codes("all of them are planned again", "some keys were refused"),
    "agentjobs retry run.db --state failed --max-tries 3",
)
@journal_before_keys("agentjobs retry FILE --state failed", "[KEY]...")
@filter_options
@MAX_TRIES
@click.option("--dry-run", is_flag=True, help="Show which, and change nothing.")
def retry(journal: str, keys: Sequence[str], where: Where, max_tries: int | None, *, dry_run: bool) -> int:
    """Plan items again that failed, or were archived or rejected: those of each KEY, or all that meet the options.

    agentjobs resume, or a worker that runs, sends them.
    """
    if bool(keys) == (where != Where()) or (keys and (max_tries or dry_run)):
        raise InvalidInputError("give either KEY..., or which items, such as --state failed")
    if keys:
        return run_action(lambda context: _retry_keys(context, journal, keys))
    if dry_run:
        return run_action(lambda context: _show_retries(context, journal, where, max_tries))
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


async def _show_retries(context: Context, journal: str, where: Where, max_tries: int | None) -> int:
    """Show which items `_retry_items` would plan again."""
    shown = 0
    where = retried(where)
    async with Journal.open(journal, read_only=True) as opened:
        opened._opened.check_not_moved()
        async for page in opened.rows(where=where).pages():
            rows = [row for row in page if max_tries is None or row.tries < max_tries]
            show_rows(context.screen, rows, header=not shown)
            shown += len(rows)
    context.screen.notice(f"{_items(shown)} would be planned again.")
    return ExitCode.COMPLETED


async def _show_planned(context: Context, journal: Journal, given: str, planned: int) -> None:
    """Show how many were planned, and what sends them; `given` is the journal as the command was given it."""
    them = "it" if planned == 1 else "them"
    if not planned:
        context.screen.notice("0 items planned again.")
    elif journal.is_shared:  # its address may hold a password, which no command shows
        context.screen.notice(
            f"{_items(planned)} planned again; a worker that runs, or agentjobs resume, sends {them}."
        )
    else:
        context.screen.notice(f"{_items(planned)} planned again. Send {them} with:")
        options = options_to(await journal._entries.service())
        context.screen.command(f"  {resume_command(given, options)}")


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number:,} items"


@command(
    "resolve",
    journal_exit_codes("all were settled", "some lines of --from were refused"),
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
@click.option("--from", "file", metavar="FILE", type=TEXT, help="Settle many: see above. - is standard input.")
def resolve(
    journal: str, keys: Sequence[str], job: str | None, file: str | None, *, send_again: bool, abandon: bool
) -> int:
    """Settle the item KEY, which may have started an agent: look at the project first.

    agentjobs status names the project, and the time at which the item was sent: about that of its job, if it has one.

    --abandon also withdraws an item that is planned, and ends one whose job can't be read any more; only retry KEY
    sends it again. Another --job corrects a wrong one, until that was seen to end.

    A line of the file of --from is a key and a job, send-again or abandon; it may be CSV with the columns key and job,
    or JSON Lines with these fields. A line that can't be carried out is shown with the reason, and the others are
    carried out.
    """
    ways = [job, *[_SEND_AGAIN] * send_again, *[_ABANDON] * abandon]
    found = [way for way in ways if way is not None]
    if file is not None:
        if keys or found:
            raise InvalidInputError("--from FILE goes without KEY, --job, --send-again and --abandon")
        lines = _resolutions_of(file)
        return run_action(lambda context: _settle_all(context, journal, lines))
    if len(keys) != 1:
        raise InvalidInputError("give the journal and the KEY of one item, or --from FILE for many")
    if len(found) != 1:
        raise InvalidInputError("give either --job ID or --send-again, or --abandon")
    if job in _DONE:  # a job of this name has a token
        raise InvalidInputError(f"--job names a job: say --{job}, or write project~.job")
    return run_action(lambda context: _settle_one(context, journal, keys[0], found[0]))


async def _settle_one(context: Context, journal: str, key: str, what: str) -> int:
    async with Journal.open(journal) as opened:
        await _settle(opened, key, what)
    if what == _ABANDON:
        context.screen.notice(f"{in_words(key)} is abandoned: nothing is sent, and an agent at work continues.")
        context.screen.notice("To plan it again, use agentjobs retry with its key.")
        return ExitCode.COMPLETED
    done = "is planned again" if what == _SEND_AGAIN else "has its job"
    by_whom = "a running worker, or agentjobs resume," if opened.is_shared else "agentjobs resume"
    context.screen.notice(f"{in_words(key)} {done}; {by_whom} continues with it.")
    return ExitCode.COMPLETED


async def _settle_all(context: Context, journal: str, resolutions: Sequence[_Resolution]) -> int:
    """Carry out each line; show those that can't be, each with the reason, and how many were carried out."""
    done = Counter[str]()
    async with Journal.open(journal) as opened:
        for resolution in resolutions:
            defect = resolution.defect or await _refusal(opened, resolution)
            if defect:
                name = f"{resolution.place} {one_line(resolution.key, 200)}".rstrip()
                context.screen.notice(f"{name} ", ("refused", "bold red"), f": {defect}")
            else:
                done[_DONE.get(resolution.what, _WITH_JOB)] += 1
    refused = len(resolutions) - done.total()
    settled = "".join(f", {number:,} {words}" for words, number in done.items())
    context.screen.notice(f"{done.total():,} settled{settled}; {refused:,} refused.")
    return ExitCode.FAILED if refused else ExitCode.COMPLETED


async def _refusal(journal: Journal, resolution: _Resolution) -> str:
    """Carry out one line; return why it can't be, or nothing."""
    try:
        await _settle(journal, resolution.key, resolution.what)
    except InvalidInputError as error:
        return described(error)
    return ""


async def _settle(journal: Journal, key: str, what: str) -> None:
    """Settle an item by a job's id or token, by `send-again` or by `abandon`: as an option or a line of a file says.

    Raises:
        InvalidInputError: The item can't be settled so.
    """
    if what == _ABANDON:
        await journal.abandon(key)
    elif what == _SEND_AGAIN:
        await journal.resolve(key, send_again=True)
    else:
        await journal.resolve(key, job_id=found_job(what))


def _resolutions_of(file: str) -> list[_Resolution]:
    """Return what the lines of a file say; `-` is standard input.

    Raises:
        InvalidInputError: It can't be read as a whole, or says nothing.
    """
    found = [_resolution(record) for record in _records(file, read_text(file, _OPTION))]
    if not found:
        raise InvalidInputError(f"{_OPTION}: there is no line of a key and a job, {_SEND_AGAIN} or {_ABANDON}")
    return found


def _records(file: str, text: str) -> list[Record]:
    form = apparent_format(file, text)
    if form == "lines" and set(text.partition("\n")[0].strip().split(",")) >= _NAMES:
        form = "csv"  # such as a table from standard input, which has no suffix
    records = records_of(file, text, form, _OPTION)
    if form in {"csv", "tsv"} and not all(record.fields is None or set(record.fields) >= _NAMES for record in records):
        raise InvalidInputError(f"{_OPTION}: the first line of a table must name its columns, key and job among them")
    return records


def _resolution(record: Record) -> _Resolution:
    fields = record.fields
    if isinstance(fields, str):
        words = fields.rsplit(maxsplit=1)
        fields = dict(zip(("key", "job"), words, strict=False))
    if record.defect or fields is None:
        return _Resolution(record.place, defect=record.defect)
    key, what = (str(fields.get(name) or "").strip() for name in ("key", "job"))
    if not key or not what:
        return _Resolution(record.place, defect=f"it has no key, or neither a job nor {_SEND_AGAIN} nor {_ABANDON}")
    return _Resolution(record.place, key, what)
