"""What the rows of a journal say of the tries of its items."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from agentjobs_async.batch import JournalRow

_LATE = "its create was answered late"


def tries_by_key(rows: Iterable[JournalRow]) -> dict[str, list[JournalRow]]:
    """Return the tries of each item in their order, the newest one last, from rows that include all tries."""
    found: dict[str, list[JournalRow]] = defaultdict(list)
    for row in rows:
        found[row.key].append(row)
    return found


def is_late(row: JournalRow) -> bool:
    """Return whether a try has the job of a create that was answered after its item had moved on."""
    return (row.error or "").startswith(_LATE)


def named_tries(rows: Iterable[JournalRow]) -> Iterator[tuple[tuple[int, int, str], JournalRow]]:
    """Yield each try under what names it for good: its item's number, its own, and its job's id if others share both.

    A row that was settled by another job than that of its create shares them with what keeps the latter.
    """
    for row in rows:
        yield (row.number, row.tries, (row.job_id or "") if is_late(row) else ""), row
