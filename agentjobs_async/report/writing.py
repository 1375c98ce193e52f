"""Write a report of a journal in one of the formats."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TextIO

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal
from agentjobs_async.report.html import check_installed, write_html
from agentjobs_async.report.items import write_csv, write_jsonl
from agentjobs_async.report.markdown import write_markdown
from agentjobs_async.report.source import Source

__all__ = ["FORMATS", "check_format", "format_of", "write_report"]

_WRITERS: Final[dict[str, Callable[[Source, TextIO], Awaitable[None]]]] = {
    "html": write_html,
    "markdown": write_markdown,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
FORMATS: Final = tuple(_WRITERS)
"""The formats of a report, the default first."""
_OF_TRIES: Final = ("csv", "jsonl")  # a page and a summary have a place for each item
_SUFFIXES: Final = {".md": "markdown", ".csv": "csv", ".jsonl": "jsonl"}


def format_of(file: str) -> str:
    """Return the format that the suffix of a file names; `html` for any other suffix."""
    return _SUFFIXES.get(Path(file).suffix.lower(), FORMATS[0])


def check_format(form: str, *, all_tries: bool = False) -> None:
    """Raise the error of a report that can't be written, before anything is read.

    Raises:
        InvalidInputError: There is no such format, or it does not show earlier tries.
        ModuleNotFoundError: The extra `report` is not installed, and a page needs it.
    """
    if form not in _WRITERS:
        raise InvalidInputError(f"format must be one of {', '.join(FORMATS)}, not {form!r:.100}")
    if all_tries and form not in _OF_TRIES:
        raise InvalidInputError(f"all_tries is for {' and '.join(_OF_TRIES)}: {form} has each item once")
    if form == "html":
        check_installed()


async def write_report(
    journal: Journal,
    stream: TextIO,
    *,
    format: str = "html",  # noqa: A002 - a settled name
    prompts: bool = True,
    all_tries: bool = False,
) -> None:
    """Write a report of all items to a text stream.

    The journal may be open for reading only, while a batch continues. No text is cut, also none that is too long for
    a cell of a spreadsheet (32,767 characters).

    Args:
        journal: The open journal.
        stream: Open for text, best in UTF-8.
        format: `html`, one page to look at, which fetches nothing (needs the extra `report`); `markdown`, at most
            1 MiB, such as a summary of a step on GitHub; `csv`, for spreadsheets; or `jsonl`, a JSON object per item.
        prompts: Whether the prompts are shown; `markdown` never shows them. Errors of a server may quote one.
        all_tries: Whether each item is preceded by its earlier tries, which only `csv` and `jsonl` show; otherwise each
            item is there once, as its last try.

    Raises:
        InvalidInputError: There is no such format, it does not show earlier tries, or the journal is not open.
        JournalError: The journal can't be read.
        ModuleNotFoundError: The extra `report` is not installed, and a page needs it.
    """
    check_format(format, all_tries=all_tries)
    await _WRITERS[format](await Source.of(journal, prompts=prompts, all_tries=all_tries), stream)
