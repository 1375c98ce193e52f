"""What a report is made of: a journal at one time."""

import time
from typing import Self

from attrs import field, frozen

from agentjobs_async.batch import Journal

__all__ = ["Source"]


@frozen
class Source:
    """A journal at one time.

    Attributes:
        journal: The open journal.
        prompts: Whether the report shows the prompts.
        pauses: How often the server asked for no create of a project, and for how many seconds in all.
        made_at: The time of the report, in seconds since the epoch, by this process's clock.
    """

    journal: Journal
    prompts: bool = True
    pauses: tuple[int, float] = (0, 0.0)
    made_at: float = field(factory=time.time)

    @classmethod
    async def of(cls, journal: Journal, *, prompts: bool = True) -> Self:
        """Return an open journal as it is now.

        Raises:
            InvalidInputError: The journal is not open.
            JournalError: The journal can't be read.
        """
        return cls(journal, prompts, await journal._entries.pauses())
