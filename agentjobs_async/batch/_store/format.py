"""The numbers that identify a journal and the version of its tables."""

from typing import Final

__all__ = ["APPLICATION", "EARLIER", "VERSION"]

APPLICATION: Final = 0x414A6F62
"""SQLite's `application_id` of a journal, and the key of PostgreSQL's lock while one is made: "AJob"."""
VERSION: Final = 3
"""The version of the tables: SQLite's `user_version`, and a column on PostgreSQL."""
EARLIER: Final = 2
"""The version of which a journal is upgraded when its owner opens it."""
