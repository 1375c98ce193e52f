"""A journal as a report of JUnit's shape, which every build server shows: one case for each item."""

from collections import Counter
from io import StringIO
from typing import Final, TextIO
from xml.sax.saxutils import XMLGenerator, quoteattr

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.figures import job_seconds
from agentjobs_async.report.items import without_error
from agentjobs_async.report.source import Source
from agentjobs_async.report.texts import link_or_none, shown

__all__ = ["write_junit"]

_MOST_TEXT: Final = 4000  # characters of an error or a prompt
_ENDS: Final = {
    State.COMPLETED: None,
    **dict.fromkeys((State.FAILED, State.ARCHIVED, State.REJECTED), "failure"),
    State.UNKNOWN: "error",
    **dict.fromkeys((State.PLANNED, State.SENDING, State.ACTIVE, State.ABANDONED), "skipped"),
}
"""The element that states how a case ended; `None` for a case that passed."""


async def write_junit(source: Source, stream: TextIO) -> None:
    """Write one case for each item, with the project as its class."""
    cases, ends, seconds = StringIO(), Counter[str | None](), 0.0
    writer = XMLGenerator(cases, short_empty_elements=True)
    async for row in source.journal.rows():
        ends[_ENDS[row.state]] += 1
        seconds += job_seconds(row) or 0
        _write_case(writer, row, prompts=source.prompts)
        cases.write("\n")
    counts = {"failures": ends["failure"], "errors": ends["error"], "skipped": ends["skipped"]}
    suite = {"name": _text(source.journal.name), "tests": ends.total(), **counts, "time": f"{seconds:.3f}"}
    attributes = " ".join(f"{name}={quoteattr(str(value))}" for name, value in suite.items())
    # The counts of the only suite are those of all.
    stream.write(f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites {attributes}>\n<testsuite {attributes}>\n')
    stream.write(cases.getvalue())
    stream.write("</testsuite>\n</testsuites>\n")


def _write_case(writer: XMLGenerator, row: JournalRow, *, prompts: bool) -> None:
    seconds = job_seconds(row) or 0
    case = {"name": _text(row.item_key), "classname": _text(row.project_id), "time": f"{seconds:.3f}"}
    writer.startElement("testcase", case)  # type: ignore[arg-type] # a dict serves
    end = _ENDS[row.state]
    if end is not None:
        error = _text(row.error or without_error(row.state, row.job_id) or "")
        said = {"message": error.partition("\n")[0] or row.state.value, "type": row.state.value}
        _write(writer, end, said, error)
    told = [link_or_none(row.pr_link), row.prompt if prompts else None]
    if any(told):
        _write(writer, "system-out", {}, "\n".join(_text(text) for text in told if text))
    writer.endElement("testcase")


def _write(writer: XMLGenerator, name: str, attributes: dict[str, str], text: str) -> None:
    writer.startElement(name, attributes)  # type: ignore[arg-type] # a dict serves
    writer.characters(text)
    writer.endElement(name)


def _text(text: str) -> str:
    """Return a text without the characters that XML forbids, which `shown` escapes."""
    return shown(text, _MOST_TEXT)
