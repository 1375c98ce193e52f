"""The commands of journals: `status` and `resolve`.

What they do is imported when they run: it loads SQLAlchemy, which no other command waits for.
"""

from pathlib import Path

import click

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.cli._commands.help_pages import ALL_COMPLETED, command
from agentjobs_async.cli._commands.options import TEXT, journal_option
from agentjobs_async.cli.process import run_action

__all__ = ["existing", "resolve", "status"]


def existing(journal: str) -> str:
    """Return the file or URL of a journal.

    Raises:
        InvalidInputError: There is no such file.
    """
    from agentjobs_async.batch import Journal  # noqa: PLC0415 - see above

    if not Journal.open(journal).is_shared and not Path(journal).exists():
        raise InvalidInputError(f"--journal: there is no {one_line(journal, 200)}")
    return journal


@command("status", short_help="Show what a journal holds.", epilog=ALL_COMPLETED)
@click.argument("place", metavar="[FILE|URL]", required=False)
@journal_option("The journal; a run may be using it.", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "jsonl"]),
    default="table",
    show_default=True,
    help="A table for people, one in Markdown, or a JSON object per row.",
)
@click.option("--watch", is_flag=True, help="Show its rate, its end and its workers until all items have ended.")
def status(place: str | None, journal: str | None, form: str, *, watch: bool) -> int:
    """Show what the journal FILE holds, while a run uses it or later. The exit code is that of all items.

    Without a journal, list those that runs without --journal have left, and how to go on with each.

    With --watch a terminal shows the journal as it changes; any other output gets a line each minute.
    """
    from agentjobs_async.cli import journals  # noqa: PLC0415 - see above

    if watch and (form != "table" or (place or journal) is None):
        raise InvalidInputError("--watch shows one journal to people: give its FILE or URL, and no --format")
    if (named := place or journal) is None:
        return run_action(lambda context: journals.show_left_journals(context, form))
    found = existing(named)
    if watch:
        from agentjobs_async.cli.watching import watch_status  # noqa: PLC0415 - see above

        return run_action(lambda context: watch_status(context, found))
    return run_action(lambda context: journals.show_status(context, found, form))


@command("resolve", short_help="Settle an item whose create is unknown.", epilog=ALL_COMPLETED)
@click.argument("key")
@journal_option("The journal; no run may be using a file.")
@click.option(
    "--job",
    "job_id",
    metavar="JOB",
    type=TEXT,
    help="The job that you found: its id, or its token project/job, in which %2F stands for a slash of an id. "
    "resume waits for it.",
)
@click.option("--send-again", is_flag=True, help="There is none, or a second one does no harm; resume creates it.")
@click.option("--abandon", is_flag=True, help="End it as failed, whatever became of its job; nothing is waited for.")
def resolve(key: str, journal: str, job_id: str | None, *, send_again: bool, abandon: bool) -> int:
    """Settle the item KEY, which may have started an agent: look at the project first.

    --abandon also ends an item whose job can't be read any more.
    """
    from agentjobs_async.cli import journals  # noqa: PLC0415 - see above

    if (job_id is not None) + send_again + abandon != 1:
        raise InvalidInputError("give either --job ID or --send-again, or --abandon")
    found = existing(journal)
    if abandon:
        return run_action(lambda context: journals.abandon_row(context, found, key))
    return run_action(lambda context: journals.resolve_row(context, found, key, job_id))
