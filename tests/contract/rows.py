"""Tables as one test: all rows are checked at the same time, and a failure names each row that fails."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

__all__ = ["failing"]


async def failing(check: Callable[[Any], Coroutine[Any, Any, object]], rows: Iterable[Any]) -> dict[str, str]:
    """Check all rows at once; return why each row that fails did so."""
    rows = list(rows)
    ends = await asyncio.gather(*map(check, rows), return_exceptions=True)
    return {repr(row)[:200]: repr(end) for row, end in zip(rows, ends, strict=True) if isinstance(end, BaseException)}
