"""The command that writes what became of each item."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from agentjobs_async.batch import Journal
from agentjobs_async.cli._input.options import WRITTEN_FILE, all_tries_option, journal_argument
from agentjobs_async.cli._output.files import whole_file
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report.items import COLUMNS, cell_text, csv_line, document


@command(
    "export",
    journal_exit_codes("it is written, whatever has ended how"),
    "agentjobs export run.db --out results.csv",
)
@journal_argument("The journal; a run may be using it.", "agentjobs export FILE")
@click.option("--out", metavar="FILE", type=WRITTEN_FILE, help="The file to write.  [default: standard output]")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), help="[default: by the suffix of --out, or csv]")
@all_tries_option
def export(journal: str, out: str | None, form: str | None, *, all_tries: bool) -> int:
    """Write a line for each item: its state, project, job, pull request, error, times, polls, tries and context.

    The context has the columns of the input that are neither key nor part of the prompt.
    """
    form = form or ("jsonl" if (out or "").endswith(".jsonl") else "csv")
    return run_action(lambda context: _export(context, journal, form, out, all_tries=all_tries))


async def _export(context: Context, journal: str, form: str, out: str | None, *, all_tries: bool) -> int:
    async with Journal.open(journal, read_only=True) as opened:
        items = [document(row) async for row in opened.rows(all_tries=all_tries)]
    text = "".join(_csv_lines(items) if form == "csv" else _json_lines(items))
    if out is None:
        context.screen.raw_text(text)
    else:
        with whole_file(out) as stream:
            stream.write(text)
        context.screen.notice(f"{len(items):,} lines written to {out}.")
    return ExitCode.COMPLETED


def _csv_lines(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the line of all columns, those of any context last, then the line of each item."""
    names = dict.fromkeys([*COLUMNS, *(name for item in items for name in item)])
    yield csv_line(map(cell_text, names))
    for item in items:
        yield csv_line(cell_text(item.get(name)) for name in names)


def _json_lines(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for item in items:
        yield f"{json.dumps(item)}\n"
