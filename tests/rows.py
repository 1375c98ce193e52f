"""Tables as one test: each row is checked, and a failure names all the rows that fail."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

__all__ = ["failing", "failing_async"]


def failing(check: Callable[..., object], rows: Iterable[tuple[Any, ...]]) -> dict[str, str]:
    """Call `check` with each row; return why each row that fails did so."""
    failed = {}
    for number, row in enumerate(rows):
        try:
            check(*row)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error makes a row one that fails
            failed[_name(number, row)] = f"{type(error).__name__}: {error}"
    return failed


async def failing_async(check: Callable[..., Awaitable[object]], rows: Iterable[tuple[Any, ...]]) -> dict[str, str]:
    """Await `check` with each row, one after the other; return why each row that fails did so."""
    failed = {}
    for number, row in enumerate(rows):
        try:
            await check(*row)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - as above
            failed[_name(number, row)] = f"{type(error).__name__}: {error}"
    return failed


def _name(number: int, row: tuple[Any, ...]) -> str:
    return f"row {number}: {row!r:.200}"
