"""Lines of plain text for narrow terminals: broken between words, never within one."""

import os
import re
import textwrap
from typing import TextIO


def fitted(text: str, stream: TextIO) -> str:
    """Return `text` with its lines wrapped to the terminal that `stream` is; unchanged if it is not one."""
    if not stream.isatty():
        return text
    columns = os.get_terminal_size(stream.fileno()).columns
    return "\n".join(wrapped(line, columns) for line in text.split("\n")) if columns else text


def wrapped(line: str, columns: int, *, indent: int = 0) -> str:
    """Return one line as lines of at most `columns` columns, further ones below its last cell; words stay whole.

    Args:
        line: Words, or cells with two blanks or more between them.
        columns: The width.
        indent: Blanks before each line, those that `line` begins with left out.
    """
    line = f"{' ' * indent}{line}"
    if len(line) <= columns:
        return line
    beginning = re.match(r" *(?:\S+ {2,})?", line)
    hanging = 0 if beginning is None else min(beginning.end(), columns // 3)
    lines = textwrap.wrap(
        line, columns, subsequent_indent=" " * hanging, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)
