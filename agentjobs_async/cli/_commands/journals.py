"""The commands of journals: `status`, `retry` and `resolve`.

What they do is imported when they run: it loads SQLAlchemy, which no other command waits for.
"""

from typing import TYPE_CHECKING

import click

from agentjobs_async import InvalidInputError
from agentjobs_async.cli._commands.filters import filter_options
from agentjobs_async.cli._commands.help_pages import ALL_COMPLETED, command, journal_exit_codes
from agentjobs_async.cli._commands.journal_arguments import existing, journal_argument, journal_before_keys
from agentjobs_async.cli._commands.options import TEXT, WRITTEN_FILE
from agentjobs_async.cli.process import run_action
from agentjobs_async.cli.records import FORMATS

if TYPE_CHECKING:
    from agentjobs_async.batch import Where


@command("status", short_help="Show what a journal holds.", epilog=ALL_COMPLETED)
@journal_argument("The journal; a run may be using it.", None)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "jsonl"]),
    default="table",
    show_default=True,
    help="A table for people, one in Markdown, or a JSON object per row.",
)
@click.option("--watch", is_flag=True, help="Show rate, probable end and workers until all items have ended.")
@click.option("--summary", "is_summary", is_flag=True, help="Only how many items are in which state.")
@filter_options
def status(journal: str | None, form: str, where: "Where", *, watch: bool, is_summary: bool) -> int:
    """Show what the journal FILE holds, while a run uses it or later: how many items are in which state, then each.

    With --state, --grep, --project or --older-than, show those items that meet all of them. The exit code is that of
    all items. Without a journal, list those that runs without --journal have left, and how to continue with each.

    With --watch a terminal shows the journal as it changes; any other output gets a line each minute.
    """
    from agentjobs_async.cli import journals, status  # noqa: PLC0415 - see above

    if watch and (form != "table" or journal is None):
        raise InvalidInputError("--watch shows one journal to people: give its FILE or URL, and no --format")
    if journal is None:
        return run_action(lambda context: journals.show_left_journals(context, form))
    found, options = existing(journal), status.StatusOptions(form, where, is_summary)
    if watch:
        from agentjobs_async.cli.watching import watch_status  # noqa: PLC0415 - see above

        return run_action(lambda context: watch_status(context, found))
    return run_action(lambda context: status.show_status(context, found, options))


@command(
    "retry",
    short_help="Plan failed items again.",
    epilog=journal_exit_codes("all of them are planned again", "some keys were refused"),
)
@journal_before_keys(
    "The journal; if it is a file, no run may be using it.", "agentjobs retry FILE --state failed", "[KEY]..."
)
@filter_options
@click.option("--max-tries", type=click.IntRange(min=2), help="Only items that had fewer tries.")
@click.option("--dry-run", is_flag=True, help="Show which, and change nothing.")
def retry(keys: tuple[str, ...], journal: str, where: "Where", max_tries: int | None, *, dry_run: bool) -> int:
    """Plan items again that failed, or were archived or rejected: those of each KEY, or all that meet the options.

    agentjobs resume, or a worker that runs, sends them.
    """
    from agentjobs_async.batch import Where  # noqa: PLC0415 - see above
    from agentjobs_async.cli import retrying  # noqa: PLC0415 - see above

    if bool(keys) == (where != Where()) or (keys and (max_tries or dry_run)):
        raise InvalidInputError("give either KEY..., or which items, such as --state failed")
    found = existing(journal)
    if keys:
        return run_action(lambda context: retrying.retry_keys(context, found, keys))
    if dry_run:
        return run_action(lambda context: retrying.show_retries(context, found, where, max_tries))
    return run_action(lambda context: retrying.retry_items(context, found, where, max_tries))


@command(
    "export",
    short_help="Write the outcome of each item.",
    epilog=journal_exit_codes("the outcomes are written, whatever they are"),
)
@journal_argument("The journal; a run may be using it.", "agentjobs export FILE")
@click.option("--join", "file", metavar="FILE", type=TEXT, help="The input of run: its columns come first.")
@click.option("--input-format", type=click.Choice(FORMATS), help="The format of the input.  [default: as run takes it]")
@click.option("--key", metavar="NAME", type=TEXT, help="The column or field of keys.  [default: the record's number]")
@click.option("--out", metavar="FILE", type=WRITTEN_FILE, help="The file to write.  [default: standard output]")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="[default: by the suffix of --out, or csv]")
def export(journal: str, file: str | None, **options: str | None) -> int:
    """Write a line for each item: its outcome, pull request, job, tries, times and error.

    With --join, and --key as run was given it, write a line for each record of the input: its own columns, then those
    of its item. A record that was refused or never sent has a line, too.
    """
    from agentjobs_async.cli import exporting  # noqa: PLC0415 - see above

    if file is None and (options["key"] or options["input_format"]):
        raise InvalidInputError("--key and --input-format say how to read --join FILE")
    form = options["form"] or ("jsonl" if (options["out"] or "").endswith(".jsonl") else "csv")
    join = None if file is None else exporting.Join(file, options["input_format"], options["key"])
    chosen = exporting.Export(existing(journal), form, options["out"], join)
    return run_action(lambda context: exporting.export(context, chosen))


@command(
    "resolve",
    short_help="Settle an item whose create is unknown.",
    epilog=journal_exit_codes("all were settled", "some lines of --from were refused"),
)
@journal_before_keys(
    "The journal; if it is a file, no run may be using it.", "agentjobs resolve FILE KEY --job JOB", "[KEY]"
)
@click.option(
    "--job",
    "job_id",
    metavar="JOB",
    type=TEXT,
    help="The job that you found: its id, or its token project/job, in which %2F stands for a slash of an id. "
    "resume waits for it.",
)
@click.option("--send-again", is_flag=True, help="It has no job, or a second job does no harm: resume creates one.")
@click.option("--abandon", is_flag=True, help="Give it up, whatever became of its job; only retry KEY sends it again.")
@click.option("--from", "file", metavar="FILE", type=TEXT, help="Settle many: see above. - is standard input.")
def resolve(
    keys: tuple[str, ...], journal: str, job_id: str | None, file: str | None, *, send_again: bool, abandon: bool
) -> int:
    """Settle the item KEY, which may have started an agent: look at the project first.

    --abandon also ends an item whose job can't be read any more. Another --job corrects a wrong one, until that was
    seen to end.

    A line of the file of --from is a key and a job, send-again or abandon; it may be CSV with the columns key and job,
    or JSON Lines with these fields. A line that can't be carried out is shown with the reason, and the others are
    carried out.
    """
    from agentjobs_async.cli import journals, resolving  # noqa: PLC0415 - see above

    if file is not None:
        if keys or job_id is not None or send_again or abandon:
            raise InvalidInputError("--from FILE goes without KEY, --job, --send-again and --abandon")
        place, resolutions = existing(journal), resolving.resolutions_of(file)
        return run_action(lambda context: resolving.resolve_all(context, place, resolutions))
    if len(keys) != 1:
        raise InvalidInputError("give the journal and the KEY of one item, or --from FILE for many")
    (key,) = keys
    if (job_id is not None) + send_again + abandon != 1:
        raise InvalidInputError("give either --job ID or --send-again, or --abandon")
    found = existing(journal)
    if abandon:
        return run_action(lambda context: journals.abandon_row(context, found, key))
    return run_action(lambda context: journals.resolve_row(context, found, key, job_id))
