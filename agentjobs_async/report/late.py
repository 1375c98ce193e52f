"""What a report says of creates that were answered after their items had gone on: each is one agent too many."""

from typing import Final

from agentjobs_async import JobRef
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.batch._store.late import late_tries
from agentjobs_async.report.texts import shown

__all__ = ["LATE_ADVICE", "LATE_TITLE", "late_lines"]

LATE_TITLE: Final = "Answered late"
LATE_ADVICE: Final = (
    "The creates of these tries were answered when their items had gone on, so that a second agent may have got the"
    " same prompt. Nothing stops it from here: look at both jobs, and keep the result of one."
)
_MOST: Final = 20  # tries


async def late_lines(journal: Journal) -> list[str]:
    """Return a line for each of the first tries whose creates were answered late: it, its job, and its item.

    Raises:
        JournalError: The journal can't be read.
    """
    tries = await late_tries(journal.store, _MOST)
    items = await journal.store.rows_of({row.key for row in tries}) if tries else {}
    return [f"{shown(row.key)}: {_in_words(row)}; {_in_words(items[row.key])}" for row in tries]


def _in_words(row: JournalRow) -> str:
    job = "" if row.job_id is None else f", {JobRef(row.project_id, row.job_id).to_token()}"
    return f"try {row.tries} is {row.state}{job}"
