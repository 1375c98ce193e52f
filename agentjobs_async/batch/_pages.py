"""Many items, cut into pages: what one statement names, or one transaction changes."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

NAMED_AT_ONCE: Final = 500
"""Keys or numbers of rows that one statement names: SQLite has a limit of parameters."""

T = TypeVar("T")


def pages_of(items: Iterable[T], size: int = NAMED_AT_ONCE) -> Iterator[list[T]]:
    """Return the items in lists of `size`, the last one shorter. They must not change until the last is read."""
    left = iter(items)
    return iter(lambda: list(islice(left, size)), [])
