"""Lines and a live view, by rich.

Colours, the live view and the width apply to terminals only. All text is escaped here, so that no text of a server or a
file can control the terminal, be read as markup, or give GitHub Actions a command.
"""

import asyncio
import contextlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

from agentjobs_async._text import one_line
from agentjobs_async.cli._output.columns import LONGEST_LINE
from agentjobs_async.cli._output.streams import guarded, is_on_github, without_commands, without_commands_in_json

Styled = str | tuple[str, str]
"""Text, or text and its style."""
Line = tuple[Styled, ...]
Drawn = RenderableType
"""What rich draws."""
Cell = Sequence[Line]
"""What stands in one row and one column of a table: lines."""

_STYLES: Final = {
    "active": "cyan",
    "completed": "green",
    "failed": "bold red",
    "rejected": "bold red",
    "unknown": "bold red",
}
_REFRESH_SECONDS: Final = 0.2  # between two drawings of the live view: smooth enough, at little cost
_REST_PER_DRAWING: Final = 10.0
_SHELL_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
_WORD: Final = re.compile(r"\s*(?P<word>\S+)")
_CONTINUED: Final = " \\"
_CLEAR_LINE: Final = "\x1b[2K"
_CLEAR_LINE_ABOVE: Final = "\x1b[1A\x1b[2K"
_SHOW_CURSOR: Final = "\x1b[?25h"
_SIZES: Final = frozenset({"COLUMNS", "LINES"})
_SIZE: Final = re.compile("0*[1-9][0-9]{0,8}")
_DUMB: Final = frozenset({"", "dumb", "unknown"})


class Screen:
    """Standard output and standard error of one command.

    Args:
        failed: Called with the first error of a write to standard output; the error is not raised.
    """

    def __init__(self, failed: Callable[[OSError], None]) -> None:
        self._stream = guarded(sys.stdout, failed)
        self._out = _console(self._stream)
        self._error = _console(guarded(sys.stderr))
        self._live: Live | None = None
        self._height = 0
        self._rest_until = 0.0  # as of `time.monotonic`

    @property
    def is_terminal(self) -> bool:
        """Whether standard output was a terminal at the start: it may be gone since."""
        return self._out.is_terminal

    @property
    def width(self) -> int | None:
        """The columns of the terminal; `None` if standard output is not a terminal."""
        return self._out.width if self._out.is_terminal else None

    @property
    def columns(self) -> int:
        """The columns of the terminal, else as COLUMNS says, else 80, as in the log of a build server."""
        return self._out.width

    @property
    def height(self) -> int | None:
        """The lines of the terminal; `None` if standard output is not a terminal."""
        return self._out.height if self._out.is_terminal else None

    @property
    def shows_live_view(self) -> bool:
        """Whether a live view is being shown."""
        return self._live is not None

    def line(self, *parts: Styled) -> None:
        """Write one line to standard output; on a terminal it is wrapped between words, never within one."""
        _print(self._out, parts)
        if self._live is not None and time.monotonic() >= self._rest_until:
            self._refresh(self._live)  # else the view would say for a moment that what has ended is under way

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Cell]], room: int | None = None) -> None:
        """Write a table to standard output, without lines around its cells. It may be wider than the terminal.

        Args:
            heads: The name of each column.
            rows: The cells of each row.
            room: The columns to which the lines of the last cell are wrapped, between words; `None` wraps none.
        """
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for head in heads:
            table.add_column(head, no_wrap=True)
        for row in rows:
            cells = [[_text(line) for line in cell] for cell in row]
            if room is not None:
                cells[-1] = [part for line in cells[-1] for part in _wrapped(line, room)]
            table.add_row(*(Text("\n").join(lines) for lines in cells))
        options = self._out.options.update_width(LONGEST_LINE)
        for segments in self._out.render_lines(table, options, pad=False):
            _print_segments(self._out, segments)

    def draw(self, parts: Iterable[Drawn]) -> None:
        """Draw lines on standard output, without blanks at their ends."""
        for segments in self._out.render_lines(Group(*parts), pad=False):
            _print_segments(self._out, segments)

    def whole_line(self, *parts: Styled) -> None:
        """Write one line to standard output without wrapping, so that it can be copied."""
        self._out.print(_text(parts), soft_wrap=True)

    def raw_line(self, text: str) -> None:
        """Write an ASCII line to standard output unchanged."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def json_lines(self, documents: Iterable[object]) -> None:
        """Write one line of JSON for each document to standard output, all at once."""
        self._stream.write("".join(f"{without_commands_in_json(json.dumps(each))}\n" for each in documents))
        self._stream.flush()

    def raw_text(self, text: str) -> None:
        """Write text to standard output as a file would have it; in a log no line of it is a command for GitHub."""
        if is_on_github() and not _is_file(self._stream):
            text = "".join(map(without_commands, text.splitlines(keepends=True)))
        self._stream.write(text)
        self._stream.flush()

    def notice(self, *parts: Styled) -> None:
        """Write one line to standard error, or above the live view; on a terminal it is wrapped."""
        _print(self._error if self._live is None else self._out, parts)

    def command(self, text: str) -> None:
        """Write a shell command to standard error so that it can be copied.

        It is one line, or on a narrower terminal several lines that the shell joins.
        """
        lines = continued(text, self._error.width) if self._error.is_terminal else [text]
        for line in lines:
            self._error.print(_text((line,)), soft_wrap=True)

    @contextlib.asynccontextmanager
    async def live_view(self, view: Callable[[int, int], Iterable[Drawn]]) -> AsyncIterator[None]:
        """Draw `view(width, height)` below all else while the block runs, on a terminal that can move its cursor."""
        if not _is_capable(self._stream):
            yield
            return

        def shown() -> SegmentLines:
            size = self._out.size
            # The last line is empty: at the end of a full one, the terminal's "^C" would move all lines up by one.
            parts = Group(*view(size.width, size.height - 2), Text())
            lines = self._out.render_lines(parts, pad=False)
            self._height = len(lines)
            return SegmentLines(lines, new_lines=True)

        with Live(
            get_renderable=shown,
            console=self._out,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            self._live = live
            refreshing = asyncio.create_task(self._refresh_again_and_again(live))
            try:
                yield
            finally:
                self._live = None
                refreshing.cancel()
        self._height = 0

    async def _refresh_again_and_again(self, live: Live) -> None:
        while True:
            self._refresh(live)
            await asyncio.sleep(max(_REFRESH_SECONDS, self._rest_until - time.monotonic()))

    def _refresh(self, live: Live) -> None:
        """Draw the live view, and rest long enough that drawing takes at most a tenth of the time."""
        began = time.monotonic()
        live.refresh()
        now = time.monotonic()
        self._rest_until = now + _REST_PER_DRAWING * (now - began)

    def restore_terminal(self) -> None:
        """Clear the live view and show the cursor.

        It bypasses all buffers, because a signal handler calls it, which may have interrupted a buffered write.
        """
        if self._height:
            above = _CLEAR_LINE_ABOVE * (self._height - 1)
            os.write(self._stream.fileno(), f"\r{_CLEAR_LINE}{above}{_SHOW_CURSOR}".encode())

    def write_unbuffered(self, text: str) -> None:
        """Write one line to standard error, bypassing all buffers as `restore_terminal` does."""
        os.write(sys.stderr.fileno(), f"{_clean(text)}\n".encode(errors="backslashreplace"))


def continued(command: str, columns: int) -> list[str]:
    """Return the lines of a command, broken between shell words; each line but the last ends with a backslash.

    A word that is wider than the terminal is not broken.
    """
    indent = " " * (len(command) - len(command.lstrip()))
    lines: list[str] = []
    for word in _SHELL_WORD.findall(command):
        if lines and len(lines[-1]) + 1 + len(word) + len(_CONTINUED) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}{'  ' * bool(lines)}{word}")
    return [f"{line}{_CONTINUED}" for line in lines[:-1]] + lines[-1:]


def styled_status(status: str) -> tuple[str, str]:
    """Return a status or an outcome in words, with its style."""
    return status.replace("_", " "), _STYLES.get(status, "yellow")


def _is_capable(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move its cursor and show colours; without TERM it is not."""
    named = os.environ.get("TERM", "").lower() not in _DUMB
    return stream.isatty() and (named or os.name == "nt")


def _is_file(stream: TextIO) -> bool:
    with contextlib.suppress(OSError, ValueError):  # a stream of a test has no descriptor
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    return False


def _console(stream: TextIO) -> Console:
    terminal = stream.isatty()
    # Both values are explicit: rich would otherwise obey variables such as FORCE_COLOR, and colour pipes.
    coloured = _is_capable(stream) and not os.environ.get("NO_COLOR")
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
        _environ=_sized_environment(),
    )


def _sized_environment() -> dict[str, str]:
    """Return the environment without a COLUMNS or LINES that is no size, such as 0: rich would write to that width."""
    return {
        name: value for name, value in os.environ.items() if name not in _SIZES or _SIZE.fullmatch(value) is not None
    }


def _clean(words: str) -> str:
    return without_commands(one_line(words, LONGEST_LINE))


def drawn(*parts: Styled) -> Text:
    """Return one line of a live view: nothing in it is markup or controls the terminal. Too long, it is cut."""
    return _in_one_row(_text(parts))


def drawn_lines(part: Styled, columns: int) -> list[Text]:
    """Return the lines of a live view into which a text is broken between words."""
    return [_in_one_row(line) for line in _wrapped(_text((part,)), columns)]


def _in_one_row(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _text(parts: Line) -> Text:
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(_clean(words), style)
    return text


def _print_segments(console: Console, segments: Iterable[Segment]) -> None:
    line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
    line.rstrip()
    console.print(line, soft_wrap=True)


def _print(console: Console, parts: Line) -> None:
    text = _text(parts)
    for line in _wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)


def _wrapped(text: Text, columns: int) -> list[Text]:
    """Break a line between words. A word that is wider than the terminal is not broken: it may be a link."""
    breaks: list[int] = []
    room = columns
    for word in _WORD.finditer(text.plain):
        room -= cell_len(word[0])
        if room < 0 and word.start() > (breaks[-1] if breaks else 0):
            breaks.append(word.start("word"))
            room = columns - cell_len(word["word"])
    lines = text.divide(breaks)
    for line in lines:
        line.rstrip()
    return list(lines)
