"""The commands `status` and `export`."""

import click

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Where
from agentjobs_async.cli import exporting, journals
from agentjobs_async.cli import status as statuses
from agentjobs_async.cli._input.records import FORMATS
from agentjobs_async.cli.help import ALL_COMPLETED, command, journal_exit_codes
from agentjobs_async.cli.options import TEXT, WRITTEN_FILE, filter_options, journal_argument
from agentjobs_async.cli.process import run_action
from agentjobs_async.cli.watching import watch_status


@command("status", ALL_COMPLETED, "agentjobs status run.db --state failed")
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
def status(journal: str | None, form: str, where: Where, *, watch: bool, is_summary: bool) -> int:
    """Show what the journal FILE holds, while a run uses it or later: how many items are in which state, then each.

    With --state, --grep, --project or --older-than, show those items that meet all of them. The exit code is that of
    all items. Without a journal, list those that runs without --journal have left, and how to continue with each.

    With --watch a terminal shows the journal as it changes; any other output gets a line each minute.
    """
    if watch and (form != "table" or journal is None):
        raise InvalidInputError("--watch shows one journal to people: give its FILE or URL, and no --format")
    if journal is None:
        return run_action(lambda context: journals.show_left_journals(context, form))
    if watch:
        return run_action(lambda context: watch_status(context, journal))
    options = statuses.StatusOptions(form, where, is_summary)
    return run_action(lambda context: statuses.show_status(context, journal, options))


@command(
    "export",
    journal_exit_codes("the outcomes are written, whatever they are"),
    "agentjobs export run.db --out results.csv",
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
    if file is None and (options["key"] or options["input_format"]):
        raise InvalidInputError("--key and --input-format say how to read --join FILE")
    form = options["form"] or ("jsonl" if (options["out"] or "").endswith(".jsonl") else "csv")
    join = None if file is None else exporting.Join(file, options["input_format"], options["key"])
    chosen = exporting.Export(journal, form, options["out"], join)
    return run_action(lambda context: exporting.export(context, chosen))
