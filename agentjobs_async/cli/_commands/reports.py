"""The commands of reports: `report` and `serve`.

What they do is imported when they run: it loads SQLAlchemy, which no other command waits for.
"""

import sys
from typing import Final

import click

from agentjobs_async import InvalidInputError
from agentjobs_async.cli._commands.help_pages import command, journal_exit_codes
from agentjobs_async.cli._commands.journal_arguments import existing, journal_argument
from agentjobs_async.cli._commands.options import TEXT, WRITTEN_FILE
from agentjobs_async.cli.process import run_action

_FORMATS: Final = ("html", "csv", "trace", "junit", "markdown")
_PROMPTS: Final = click.option(
    "--prompts/--no-prompts", default=True, help="Whether the prompts are shown.  [default: prompts]"
)
_EPILOG: Final = journal_exit_codes("the report is written, whatever it says")


@command("report", short_help="Write a page, or a file for other programs.", epilog=_EPILOG)
@journal_argument("The journal; a run may be using it.", "agentjobs report FILE --out report.html")
@click.option("--out", metavar="FILE", type=WRITTEN_FILE, help="Where to write.  [default: standard output]")
@_PROMPTS
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="A page; a table; the log of GNU parallel; Chrome's trace events; JUnit's XML; or Markdown.  "
    "[default: by the suffix of --out, else html]",
)
def report(journal: str, out: str | None, form: str | None, *, prompts: bool) -> int:
    """Write what the journal FILE holds as a page to look at, which fetches nothing, or as a file for other programs.

    The page has figures, charts and a table to search, and for each item the command that settles or retries it.
    """
    from agentjobs_async.cli import report_file  # noqa: PLC0415 - see above

    found = existing(journal)
    if out is not None:
        file = report_file.ReportFile.of(out, form, prompts=prompts)
        return run_action(lambda context: report_file.write_file(context, found, file))
    if form in {None, "html"} and sys.stdout.isatty():
        raise InvalidInputError("a page is not for a terminal: give --out report.html, or --format markdown")
    return run_action(lambda context: report_file.write_to_screen(context, found, form or "html", prompts=prompts))


@command(
    "serve",
    short_help="Serve a live page of a journal until Ctrl-C.",
    epilog=journal_exit_codes(None),
)
@journal_argument("The journal; a run or workers may be using it.", "agentjobs serve FILE")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any that is free."
)
@click.option(
    "--host",
    type=TEXT,
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Any but a loopback one shows nothing without the token of the printed address.",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let the page retry, resolve and abandon items, with the token of the printed address.",
)
@_PROMPTS
def serve(journal: str, port: int, host: str, *, allow_actions: bool, prompts: bool) -> int:
    """Show what the journal FILE holds as a page that follows it: changes are there within a second.

    It is the page of agentjobs report. Actions are written to standard error. Other machines are better served by an
    SSH tunnel or a proxy with TLS than by --host: plain HTTP crosses the network readable.
    """
    from agentjobs_async.cli import serving  # noqa: PLC0415 - see above
    from agentjobs_async.report.html import check_installed  # noqa: PLC0415 - see above

    check_installed()
    found = existing(journal)
    return run_action(
        lambda context: serving.serve(context, found, host, port, allow_actions=allow_actions, prompts=prompts)
    )
