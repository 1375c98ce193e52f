"""Tables as one test: a failure names each row that fails, and why."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tests.contract.sinks import end_of

__all__ = ["failing", "failing_in_turn"]

Check = Callable[[Any], Coroutine[Any, Any, object]]


async def failing(check: Check, rows: Iterable[Any]) -> dict[str, str]:
    """Check all rows at once; return why each row that fails did so."""
    rows = list(rows)
    ends = await asyncio.gather(*map(check, rows), return_exceptions=True)
    return _errors(rows, ends)


async def failing_in_turn(check: Check, rows: Iterable[Any]) -> dict[str, str]:
    """Check one row after the other, where rows would get into each other's way; return the same."""
    rows = list(rows)
    return _errors(rows, [await end_of(check(row)) for row in rows])


def _errors(rows: list[Any], ends: Iterable[object]) -> dict[str, str]:
    return {repr(row)[:200]: repr(end) for row, end in zip(rows, ends, strict=True) if isinstance(end, BaseException)}
