"""Text cut and broken to the columns of a terminal, in which a letter may take two."""

import os
import textwrap
from typing import Final, TextIO

from rich.cells import cell_len, set_cell_size

from agentjobs_async._text import one_line

LONGEST_LINE: Final = 16_384  # characters
_ELLIPSIS: Final = "…"
_MOST_LEFT_EMPTY: Final = 12  # columns: a word is cut that would leave more, such as a sentence in Chinese


def columns_of(text: str) -> int:
    """Return how many columns `text` takes, with its unprintable characters escaped."""
    return len(text) if _is_plain(text) else cell_len(one_line(text, LONGEST_LINE))


def shortened(text: str, columns: int) -> str:
    """Return the beginning of `text` that fits into `columns` columns of a terminal."""
    if _is_plain(text):
        return text if len(text) <= columns else _ellipsis(text[: max(columns - 1, 0)])
    shown = one_line(text, LONGEST_LINE)
    # `set_cell_size` puts a blank in the place of a wide letter that it cuts.
    return shown if cell_len(shown) <= columns else _ellipsis(set_cell_size(shown, max(columns - 1, 0)))


def cut_at_a_word(text: str, columns: int) -> str:
    """Return the beginning of `text` that fits into `columns` columns; it ends with a whole word, or an ellipsis.

    A long word is cut where the line would be left mostly empty without it.
    """
    if _is_plain(text) and len(text) <= columns:
        return text
    shown = shortened(text, max(columns, 0))
    length = len(shown) - len(_ELLIPSIS)
    ends_with_a_word = one_line(text, LONGEST_LINE)[length : length + 1] == " "
    if columns_of(text) <= columns or " " not in shown.strip() or ends_with_a_word:
        return shown
    whole = f"{shown.rpartition(' ')[0].rstrip()}{_ELLIPSIS}"
    return whole if columns_of(shown) - columns_of(whole) <= _MOST_LEFT_EMPTY else shown


def cut_in_the_middle(text: str, columns: int) -> str:
    """Return `text` in `columns` columns of a terminal: its beginning and its end, when it is longer."""
    if columns_of(text) <= columns:
        return one_line(text, LONGEST_LINE)
    shown = one_line(text, LONGEST_LINE)
    at = len(shown)
    while cell_len(shown[at - 1 :]) <= columns // 2:
        at -= 1
    return shortened(shown, columns - cell_len(shown[at:])) + shown[at:]


def in_words(key: str) -> str:
    """Return a key as it stands in a sentence: one that is a number reads as no count."""
    return f"item {key}" if key.isdecimal() else key


def _is_plain(text: str) -> bool:
    """Return whether each letter is one column; rich takes 20 times as long to find out how many others take."""
    return (text.isascii() or text.replace(_ELLIPSIS, ".").isascii()) and text.isprintable()


def _ellipsis(text: str) -> str:
    return f"{text.rstrip()}{_ELLIPSIS}"


def fitted(text: str, stream: TextIO) -> str:
    """Return `text` with its lines wrapped to the terminal that `stream` is; unchanged if it is not one."""
    if not stream.isatty():
        return text
    columns = os.get_terminal_size(stream.fileno()).columns
    return "\n".join(wrapped(line, columns) for line in text.split("\n")) if columns else text


def wrapped(line: str, columns: int) -> str:
    """Return one line as lines of at most `columns` columns, but for a word that is longer: no word is cut."""
    if len(line) <= columns:
        return line
    return "\n".join(textwrap.wrap(line, columns, break_long_words=False, break_on_hyphens=False))
