"""How long the jobs of `agentjobs wait` have left, by the durations in a journal and those of its own run."""

import asyncio
import os
import time
from collections.abc import Collection
from typing import Final

from agentjobs_async import AgentJob, AgentJobsSession, Estimate, JournalError
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.outcomes import described
from agentjobs_async.learning.estimate import age_of, estimate_many

__all__ = ["JobEstimates", "journal_options", "learn"]

_LOOK_SECONDS: Final = 5.0  # a database that is gone does not hold up a wait that can do without it


class JobEstimates:
    """Says how long the jobs of `agentjobs wait` have left.

    Args:
        session: The session that waits for them, from now on.
    """

    def __init__(self, session: AgentJobsSession) -> None:
        self._session = session
        self._started = time.monotonic()

    def of(self, jobs: Collection[AgentJob]) -> Estimate | None:
        """Return how long these jobs have left, taken together; `None` if nothing is known of any of them."""
        waited = time.monotonic() - self._started
        known = [
            (history, age)
            for job in jobs
            if (history := self._session.history_of(job.project_id, job.model)) is not None
            and (age := age_of(job, waited)) is not None
        ]
        return estimate_many(known)


def journal_options(journal: str | None) -> list[str]:
    """Return the options that name the same journal to another command; none where the environment names it.

    Raises:
        InvalidInputError: It is neither a path nor a URL of PostgreSQL.
    """
    if journal is None or journal == os.environ.get("AGENTJOBS_JOURNAL"):  # the other command reads it there, too
        return []
    from agentjobs_async.batch import Journal  # noqa: PLC0415 - it loads SQLAlchemy, which other waits do without

    return ["--journal", Journal.open(journal, read_only=True).address]  # without the password of a URL


async def learn(session: AgentJobsSession, journal: str | None, screen: Screen) -> None:
    """Start learning from the durations in a journal; without one, or if it can't be read, from those to come."""
    if journal is not None:
        from agentjobs_async.batch import Journal  # noqa: PLC0415 - it loads SQLAlchemy, which other waits do without
        from agentjobs_async.batch._learning import begin_learning  # noqa: PLC0415 - see above
        from agentjobs_async.batch.journal import entries_of  # noqa: PLC0415 - see above

        try:
            async with asyncio.timeout(_LOOK_SECONDS), Journal.open(journal, read_only=True) as opened:
                await begin_learning(session, entries_of(opened), wanted=True)
        except JournalError as error:
            screen.notice(f"Nothing is learned from the journal: {described(error)}")
        except TimeoutError:
            screen.notice("Nothing is learned from the journal: it does not answer.")
        else:
            return
    session.learn_from({})
