"""Lines and a progress bar; the only module that knows rich.

Colour, the bar and the width count on a terminal only. Whatever is shown is escaped here, so that no text from outside
is obeyed by a terminal or read as markup.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from agentjobs_async._text import one_line
from agentjobs_async.cli.streams import guarded

__all__ = ["Screen", "Styled", "padded", "shortened", "styled_status"]

Styled = str | tuple[str, str]
"""Text, or text and its style."""

_STYLES: Final = {
    "active": "cyan",
    "completed": "green",
    "failed": "bold red",
    "rejected": "bold red",
    "unknown": "bold red",
}
_LONGEST: Final = 16_384
_REFRESH: Final = 0.2


class Screen:
    """Standard output and standard error of one command.

    Args:
        failed: Called when standard output can't be written any more; nothing is raised then.
    """

    def __init__(self, failed: Callable[[OSError], None]) -> None:
        self._stream = guarded(sys.stdout, failed)
        self._out = _console(self._stream)
        self._error = _console(guarded(sys.stderr))
        self._bar: tuple[Progress, TaskID] | None = None
        self._live: Live | None = None

    @property
    def width(self) -> int | None:
        """How many columns the terminal has; `None` without one."""
        return self._out.width if self._out.is_terminal else None

    def line(self, *parts: Styled) -> None:
        """Write one line to standard output."""
        self._out.print(_text(parts), soft_wrap=True)

    def raw_line(self, text: str) -> None:
        """Write ASCII as it is to standard output."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def notice(self, *parts: Styled) -> None:
        """Write one line to standard error; on a terminal it is wrapped between words, and goes above the bar."""
        console = self._error if self._bar is None and self._live is None else self._out
        console.print(_text(parts), soft_wrap=not console.is_terminal)

    def command(self, text: str) -> None:
        """Write one line to standard error that can be copied as a whole."""
        self._error.print(_text((text,)), soft_wrap=True)

    @asynccontextmanager
    async def bar(self, total: int) -> AsyncIterator[None]:
        """Show a bar below the lines while the block runs; on a terminal that can."""
        if not self._out.is_terminal or self._out.is_dumb_terminal:
            yield
            return
        with _progress(self._out) as progress:
            self._bar = progress, progress.add_task("", total=total, active=0)
            refreshing = asyncio.create_task(_refresh(progress))
            try:
                yield
            finally:
                self._bar = None
                refreshing.cancel()

    @asynccontextmanager
    async def board(self, lines: Callable[[int, int], Iterable[tuple[Styled, ...]]]) -> AsyncIterator[None]:
        """Show `lines(width, height)` below all else while the block runs; on a terminal that can."""
        if not self._out.is_terminal or self._out.is_dumb_terminal:
            yield
            return

        def shown() -> Text:
            size = self._out.size
            return Text("\n").join(_text(line) for line in lines(size.width, size.height - 1))

        with Live(
            get_renderable=shown,
            console=self._out,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            self._live = live
            refreshing = asyncio.create_task(_refresh(live))
            try:
                yield
            finally:
                self._live = None
                refreshing.cancel()

    def advance(self, ended: int, active: int) -> None:
        """Move the bar, if there is one."""
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=ended, active=active)


def shortened(text: str, columns: int) -> str:
    """Give the beginning of `text` that fits into so many columns of a terminal."""
    shown = Text(one_line(text, _LONGEST))
    shown.truncate(columns, overflow="ellipsis")
    return shown.plain


def padded(text: str, columns: int) -> str:
    """Give the beginning of `text`, filled up with blanks to so many columns of a terminal."""
    shown = Text(one_line(text, _LONGEST))
    shown.truncate(columns, overflow="ellipsis", pad=True)
    return shown.plain


def styled_status(status: str) -> tuple[str, str]:
    """Give a status or an outcome in words, with its style."""
    return status.replace("_", " "), _STYLES.get(status, "yellow")


def _console(stream: TextIO) -> Console:
    terminal = stream.isatty()
    # The forced values keep rich's own variables, such as FORCE_COLOR, from putting colours into pipes.
    coloured = terminal and not os.environ.get("NO_COLOR")
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _text(parts: tuple[Styled, ...]) -> Text:
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(one_line(words, _LONGEST), style)
    return text


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(),
        TextColumn("{task.completed} of {task.total} ended, {task.fields[active]} active", markup=False),
        TimeElapsedColumn(),
        console=console,
        # Refreshed by a task of the loop: rich's own thread would let a broken terminal's errors escape.
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


async def _refresh(shown: Progress | Live) -> None:
    while True:
        shown.refresh()
        await asyncio.sleep(_REFRESH)
