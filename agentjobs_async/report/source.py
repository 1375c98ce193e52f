"""What a report is made of: a journal at one time."""

import time
from collections.abc import Sequence
from typing import Self

from attrs import field, frozen

from agentjobs_async.batch import Journal, Rows
from agentjobs_async.batch._service import options_to

__all__ = ["Source"]


@frozen
class Source:
    """A journal at one time.

    Attributes:
        journal: The open journal.
        prompts: Whether the report shows the prompts.
        all_tries: Whether it has earlier tries of each item, too.
        service: The options that lead a command to the journal's service; none before its first run.
        made_at: The time of the report, in seconds since the epoch, by this process's clock.
    """

    journal: Journal
    prompts: bool = True
    all_tries: bool = False
    service: Sequence[str] = ()
    made_at: float = field(factory=time.time)

    @classmethod
    async def of(cls, journal: Journal, *, prompts: bool = True, all_tries: bool = False) -> Self:
        """Return an open journal as it is now.

        Raises:
            InvalidInputError: The journal is not open.
            JournalError: The journal can't be read.
        """
        return cls(journal, prompts, all_tries, options_to((await journal.store.meta()).service))

    def rows(self) -> Rows:
        """Return the rows that the report shows, in the order of the input."""
        return self.journal.rows(all_tries=self.all_tries)
