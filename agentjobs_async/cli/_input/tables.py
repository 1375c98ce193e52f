"""A CSV file: its delimiter, the names of its columns, and its rows."""

import csv
import io
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Self

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line

USUAL: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The usual delimiters, in words."""
_DECLARED: Final = re.compile(r'\A"?sep=(?P<delimiter>[^"\r\n])"?(?:\r\n|\r|\n|\Z)', re.IGNORECASE)
_HEAD: Final = 65_536  # characters in which the first row is looked for


def delimiter_of(text: str) -> str:
    r"""Return a delimiter as `--delimiter` names it: one character; `tab` or `\t` for a tab.

    Raises:
        InvalidInputError: It is longer, or means something else in CSV.
    """
    found = "\t" if text in {"tab", r"\t"} else text
    if len(found) != 1 or found in '"\r\n':
        raise InvalidInputError(f"{one_line(text, 60)} is no delimiter: write one character such as ';', or tab")
    return found


def option_of(delimiter: str) -> str:
    """Return the option that names a delimiter, as a shell reads it."""
    return "--delimiter tab" if delimiter == "\t" else f"--delimiter {shlex.quote(delimiter)}"


@frozen
class Table:
    """The text of a CSV file.

    Attributes:
        text: The text, without a first line `sep=;` that names the delimiter.
        delimiter: What stands between two cells.
        first_line: The number that the first line of `text` has in the file.
    """

    text: str
    delimiter: str
    first_line: int = 1

    @classmethod
    def of(cls, text: str, delimiter: str | None) -> Self:
        """Return the table of a text; `None` takes the delimiter of its line `sep=;`, as Excel does, else a comma."""
        declared = _DECLARED.match(text)
        if declared is None:
            return cls(text, delimiter or ",")
        return cls(text[declared.end() :], delimiter or declared["delimiter"], 2)

    @property
    def is_declared(self) -> bool:
        """Whether a line `sep=;` stood before `text`."""
        return self.first_line > 1

    def names(self) -> Sequence[str]:
        """Return the names of the columns; none if the first row can't be read."""
        return _names(self.text, self.delimiter)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that are not blank, each with the number of the line where it begins.

        Raises:
            InvalidInputError: A row can't be read; the message begins with its line.
        """
        # For the whole process: a cell may be a whole document, and the text is in memory already.
        csv.field_size_limit(max(csv.field_size_limit(), len(self.text)))
        reader, begin = _reader(self.text, self.delimiter), self.first_line
        try:
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield begin, row
                begin = self.first_line + reader.line_num
        except csv.Error as error:
            defect = f"line {self.first_line + reader.line_num - 1}: {error}"
        else:
            return
        raise InvalidInputError(defect)

    def better_delimiter(self, wanted: Collection[str]) -> str | None:
        """Return the delimiter by which the table has the columns that it lacks; `None` if it has them, or none helps.

        If the names are misspelt, too, that is a usual one which makes several columns of one.
        """
        names = self.names()
        if set(wanted) <= set(names):
            return None
        first = next(filter(str.strip, self.text[:_HEAD].splitlines()), "")
        possible = [each for each in dict.fromkeys(first) if not each.isalnum() and each not in {'"', self.delimiter}]
        columns = {each: _names(self.text, each) for each in possible}
        right = [each for each in possible if set(wanted) <= set(columns[each])]
        if not right and len(names) <= 1:
            right = [each for each in possible if each in USUAL and len(columns[each]) > 1]
        return max(right, key=lambda each: len(columns[each]), default=None)


def _names(text: str, delimiter: str) -> Sequence[str]:
    try:
        rows = ([cell.strip() for cell in row] for row in _reader(text[:_HEAD], delimiter))
        return next(filter(any, rows), [])
    except csv.Error:
        return []


def _reader(text: str, delimiter: str) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
