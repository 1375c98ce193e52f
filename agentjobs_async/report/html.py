"""A journal as one page that fetches nothing: its template, style and scripts, and the rows as compressed columns."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Any, Final, TextIO

from attrs import frozen

from agentjobs_async._extras import extra_named
from agentjobs_async.batch import Journal, JournalRow, State
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.report.commands import commands_of, where_to_look
from agentjobs_async.report.document import Document
from agentjobs_async.report.figures import Counted, Figures, Tally
from agentjobs_async.report.items import COLUMNS
from agentjobs_async.report.late import LATE_ADVICE, LATE_TITLE, late_lines
from agentjobs_async.report.source import Source
from agentjobs_async.report.standing import Standing, standing_of
from agentjobs_async.report.texts import link_or_none, shown

__all__ = ["SCRIPTS", "Page", "check_installed", "page_parts", "plain_rows", "rendered", "write_html"]

SCRIPTS: Final = ("texts.js", "store.js", "figures.js", "charts.js", "timeline.js", "table.js", "panel.js", "page.js")
"""The scripts of the page, in the order in which they use each other."""
_PIECE_BYTES: Final = 3 * 2**16  # a multiple of three: no padding stands between pieces
_PLAIN_ROWS: Final = 200  # of those that need a person, for readers without scripts
_PLAIN_STATES: Final = (State.UNKNOWN, State.FAILED)
_PLAIN_CHARACTERS: Final = 1_000_000  # of their prompts and errors: of longer ones, fewer rows are shown


@frozen
class Page:
    """What a page is made of besides its rows, as the template names it."""

    style: str
    script: str
    policy: str


@cache
def page_parts(
    scripts: tuple[str, ...] = SCRIPTS, connect: str = "'none'", styles: tuple[str, ...] = ("page.css",)
) -> Page:
    """Return the style, the script and the content security policy of a page: nothing runs in it but these two.

    Args:
        scripts: The names of the script's files.
        connect: What the script may fetch, as in a policy.
        styles: The names of the style's files.
    """
    style = "\n".join(map(_asset, styles))
    script = "\n".join(["'use strict';", *map(_asset, scripts)])
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Page(style, script, policy)


def _asset(name: str) -> str:
    return (files("agentjobs_async.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _environment() -> Any:
    """Return what renders the templates; every value is escaped."""
    with extra_named("a report as a page"):
        import jinja2  # noqa: PLC0415 - the extra may not be installed, and the other formats need none

    return jinja2.Environment(
        autoescape=True, loader=jinja2.FunctionLoader(_asset), undefined=jinja2.StrictUndefined, trim_blocks=True
    )


def check_installed() -> None:
    """Raise a `MissingExtraError` if the library that renders a page is missing."""
    _environment()


async def write_html(source: Source, stream: TextIO) -> None:
    """Write the page of all rows."""
    tally, document = Tally(), Document()
    async for rows in document.read(source):
        for row in rows:
            tally.add(Counted.of(row))
    figures, stands = tally.figures(source.made_at), await standing_of(source.journal)
    document.add_line(json.dumps({"figures": figures.document(), "standing": stands.document()}))
    document.end()
    data = _base64(document.whole())  # inert in HTML
    rows, late = await plain_rows(source.journal), await late_lines(source.journal)
    stream.writelines(rendered(source, page_parts(), figures, rows, data, stands=stands, late=late))


def _base64(whole: bytes) -> Iterator[str]:
    """Return the pieces of some bytes in base64."""
    for start in range(0, len(whole), _PIECE_BYTES):
        yield base64.b64encode(whole[start : start + _PIECE_BYTES]).decode()


async def plain_rows(journal: Journal) -> list[JournalRow]:
    """Return the rows that readers without scripts see: the first ones of those that need a person, each whole."""
    rows: list[JournalRow] = []
    for state in _PLAIN_STATES:
        rows += await journal.store.select(Query(states={state}, size=_PLAIN_ROWS - len(rows)))
    lengths = accumulate(len(row.prompt) + len(row.error or "") for row in rows)
    return [row for row, length in zip(rows, lengths, strict=True) if row is rows[0] or length <= _PLAIN_CHARACTERS]


def rendered(
    source: Source,
    page: Page,
    figures: Figures,
    rows: Sequence[JournalRow],
    data: Iterable[str] = (),
    *,
    stands: Standing | None,
    late: Sequence[str] = (),
    is_named: bool = True,
) -> Iterator[str]:
    """Return the pieces of a page.

    Args:
        source: The journal, and whether prompts are shown.
        page: Its parts.
        figures: What the tiles show.
        rows: The rows that are shown without scripts.
        data: The pieces of the document of all rows; without any, the page's script gets them in another way.
        stands: How the journal stands; `None` where it is not shown.
        late: The lines of the tries whose creates were answered late.
        is_named: Whether it shows the journal's name.
    """
    address = source.journal.address
    pieces: Iterator[str] = (
        _environment()
        .get_template("page.html.j2")
        .generate(
            page=page,
            name=shown(source.journal.name) if is_named else "Journal",
            made_at=datetime.fromtimestamp(source.made_at, UTC),
            figures=figures,
            standing=stands,
            why=COLUMNS["error"].of,
            where_to_look=where_to_look,
            rows=rows,
            wanting=sum(figures.counts[state] for state in _PLAIN_STATES),
            commands=[
                (state, commands_of(state, "KEY", address, source.service))
                for state in _PLAIN_STATES
                if figures.counts[state]
            ],
            shown=shown,
            link=link_or_none,
            prompts=source.prompts,
            data=data,
            late=late,
            late_title=LATE_TITLE,
            late_advice=LATE_ADVICE,
        )
    )
    return pieces
