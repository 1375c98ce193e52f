"""Tables as one test: each row is checked, and a failure names each row that fails, and why.

A row that is a tuple is several arguments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

Check = Callable[..., Coroutine[Any, Any, object]]


def failures(check: Callable[..., object], *rows: Any) -> dict[str, str]:
    """Call `check` with each row; return why each row that fails did so."""
    assert rows
    failed = {}
    for number, row in enumerate(rows):
        try:
            check(*_arguments(row))
        except (Exception, pytest.fail.Exception) as error:
            if _ends_the_test(error):
                raise
            failed[_name(number, row)] = repr(error)
    return failed


async def failures_at_once(check: Check, *rows: Any) -> dict[str, str]:
    """Check all rows at the same time; return the same."""
    return _failed(rows, await asyncio.gather(*(end_of(check(*_arguments(row))) for row in rows)))


async def failures_in_turn(check: Check, *rows: Any) -> dict[str, str]:
    """Check one row after the other, where rows would get into each other's way; return the same."""
    return _failed(rows, [await end_of(check(*_arguments(row))) for row in rows])


async def end_of(awaitable: Awaitable[object]) -> object:
    """Return what it gives, or the error it raises: a cancellation too, but not what ends the test."""
    try:
        return await awaitable
    except BaseException as error:
        if _ends_the_test(error):
            raise
        return error


def _ends_the_test(error: BaseException) -> bool:
    """Return whether a person or the time limit ends the test: the rows that are left then have no limit any more."""
    return isinstance(error, KeyboardInterrupt) or "from pytest-timeout" in str(error)


def _failed(rows: Sequence[Any], ends: Sequence[object]) -> dict[str, str]:
    assert rows
    found = enumerate(zip(rows, ends, strict=True))
    return {_name(number, row): repr(end) for number, (row, end) in found if isinstance(end, BaseException)}


def _arguments(row: Any) -> tuple[Any, ...]:
    return row if isinstance(row, tuple) else (row,)


def _name(number: int, row: Any) -> str:
    return f"row {number}: {row!r:.200}"
