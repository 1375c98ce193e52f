"""What a report is made of: a journal at one time."""

import time
from collections.abc import AsyncIterator

from attrs import field, frozen

from agentjobs_async.batch import Journal, JournalRow

__all__ = ["Source"]


@frozen
class Source:
    """A journal at one time.

    Attributes:
        journal: The open journal.
        prompts: Whether the report shows the prompts.
        made_at: The time of the report, in seconds since the epoch, by this process's clock.
    """

    journal: Journal
    prompts: bool = True
    made_at: float = field(factory=time.time)

    @property
    def name(self) -> str:
        """The journal's name, without credentials."""
        return self.journal.name

    @property
    def address(self) -> str:
        """What a command names to open the journal, without credentials."""
        return self.journal.address

    def rows(self) -> AsyncIterator[JournalRow]:
        """Return the rows: each item once, as its newest try."""
        return self.journal.rows()
