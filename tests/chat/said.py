"""A chat in memory: what a bot has said where, and what its `send` raises."""

import asyncio
from collections import defaultdict

from agentjobs_async.chat import Place
from tests.until import PATIENCE_SECONDS


class Said:
    """Keeps what is sent.

    Attributes:
        texts: What was sent, and where, in order.
        failures: By a part of a text, what sending such a text raises, one after the other.
        refused: The texts for which an error was raised.
        times: The loop time of each call, by its text.
        held: Texts with these parts are not sent before the event.
    """

    def __init__(self) -> None:
        self.texts: list[tuple[Place, str]] = []
        self.failures: defaultdict[str, list[BaseException]] = defaultdict(list)
        self.refused: list[str] = []
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.held: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    async def send(self, place: Place, text: str) -> None:
        """Keep a text, or raise."""
        self.times[text].append(asyncio.get_running_loop().time())
        for part, event in self.held.items():
            if part in text:
                await event.wait()
        failure = next((errors.pop(0) for part, errors in self.failures.items() if part in text and errors), None)
        async with self._changed:
            if failure is None:
                self.texts.append((place, text))
            else:
                self.refused.append(text)
            self._changed.notify_all()
        if failure is not None:
            raise failure

    @property
    def words(self) -> list[str]:
        """The texts alone."""
        return [text for _, text in self.texts]

    async def until(self, *parts: str) -> None:
        """Wait until a text with each of the parts was sent."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: all(any(part in text for text in self.words) for part in parts))

    async def until_refused(self, count: int) -> None:
        """Wait until an error was raised for so many texts."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.refused) >= count)
