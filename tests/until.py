"""Wait for a condition that no event announces."""

import asyncio
from collections.abc import Awaitable, Callable

PATIENCE_SECONDS = 200.0
"""Until a test fails."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, which may be asynchronous."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await _value(condition()):  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0.01)


async def _value(value: object) -> object:
    return await value if isinstance(value, Awaitable) else value
