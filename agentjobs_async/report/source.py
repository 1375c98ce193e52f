"""What a report is made of: a journal at one time."""

import time
from collections.abc import Sequence
from typing import Self

from attrs import field, frozen

from agentjobs_async.batch import Journal
from agentjobs_async.batch._service import options_to

__all__ = ["Source"]


@frozen
class Source:
    """A journal at one time.

    Attributes:
        journal: The open journal.
        prompts: Whether the report shows the prompts.
        service: The options that lead a command to the journal's service; none before its first run.
        made_at: The time of the report, in seconds since the epoch, by this process's clock.
    """

    journal: Journal
    prompts: bool = True
    service: Sequence[str] = ()
    made_at: float = field(factory=time.time)

    @classmethod
    async def of(cls, journal: Journal, *, prompts: bool = True) -> Self:
        """Return an open journal as it is now.

        Raises:
            InvalidInputError: The journal is not open.
            JournalError: The journal can't be read.
        """
        return cls(journal, prompts, options_to(await journal._store.service()))
