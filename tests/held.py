"""An emulator that answers creates when its test wants it to."""

import asyncio
from typing import Any

from agentjobs_async.testing import Emulator


class HeldEmulator(Emulator):
    """An emulator that starts the agent of each create, and answers none before it is released.

    Attributes:
        arrived: Set once a create has arrived, whose agent is at work then.
        release: Set by the test: from then on creates are answered.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()

    async def _deliver(self, exchange: Any, *answer: Any) -> bool:
        if exchange.received.method == "POST":
            self.arrived.set()
            await self.release.wait()
        return await super()._deliver(exchange, *answer)

    async def hold(self) -> None:
        """Answer no create again before the next release."""
        self.release.clear()
