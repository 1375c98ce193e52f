"""What a session is given as its key: the key, or a callable that returns the newest one, or does not."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.keys import Keys
from tests.simulation.programs.listening import CALL
from tests.simulation.world import World


def key_of(world: World, keys: Keys, sender: str, kind: str) -> str | Callable[[], str | Awaitable[str]]:
    """Return the key of a sender, or a callable of a kind, `plain` or `async`, to which faults happen."""
    if not kind:
        return keys.first[sender]
    given: int | None = None  # the version that it has returned last

    def asked() -> tuple[str, float]:
        nonlocal given
        if CALL.get() is not None:
            world.violate("P19: api_key runs in a caller's context")
        faults = world.next("key")
        if any(fault.what == "raise" for fault in faults):
            # A key that nobody knows yet can't be masked.
            raise ValueError("there is no key" if given is None else f"{keys.key(sender, given)} is an old key")
        if given is None or not any(fault.what == "old" for fault in faults):
            given = keys.newest
        return keys.key(sender, given), sum(fault.amount for fault in faults if fault.what == "slow")

    def plain() -> str:
        return asked()[0]

    async def slow() -> str:
        key, seconds = asked()
        if seconds:
            await asyncio.sleep(seconds)
        return key

    return plain if kind == "plain" else slow
