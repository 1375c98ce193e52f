"""The numbers that identify a journal and the layout of its tables."""

from typing import Final

APPLICATION: Final = 0x41674A62
"""SQLite's `application_id` of a journal, and the key of PostgreSQL's lock while one is made: "AgJb"."""
BEFORE_RELEASE: Final = 0x414A6F62
"""The `application_id` of the journals that were written before the first release."""
LAYOUT: Final = 1
"""The layout of the tables: SQLite's `user_version`, and a column on PostgreSQL."""


def other_layout(number: int) -> str:
    """Return why another layout is refused, in words; `number` 0 was written before the first release."""
    if number > LAYOUT:
        return f"it has layout {number}, written by a newer version of agentjobs-async; this one knows {LAYOUT}"
    return "it was written before the first release; finish it with the version of agentjobs-async that made it"
