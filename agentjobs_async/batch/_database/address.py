"""The address of a journal on PostgreSQL, its secrets kept apart."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line

_DRIVER: Final = "postgresql+psycopg"
_SECRET: Final = re.compile("password|passwd|secret|token|scram_.*_key", re.IGNORECASE)
"""Settings of libpq that hold a secret themselves. `passfile` and `sslkey` name files, and stay in the address."""


@frozen
class ServerAddress:
    """A database, and apart from it the secrets.

    Args:
        url: Its URL. The only secret in it is the password, which its repr hides.
        secrets: The other settings of libpq that hold a secret, by name.
    """

    url: URL
    secrets: Mapping[str, str] = field(factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Host and database."""
        return one_line(f"{self.url.host or 'PostgreSQL'}/{self.url.database}", 200)

    @property
    def shown(self) -> str:
        """The URL without a secret."""
        url = self.url
        return URL.create(
            url.drivername, url.username, None, url.host, url.port, url.database, url.query
        ).render_as_string()


def checked_location(location: object) -> ServerAddress | Path:
    """Return where a journal is: the address of its server, or the path of its file.

    Raises:
        InvalidInputError: `location` is neither a path nor a URL of PostgreSQL, or no file can have this name.
    """
    text = os.fspath(location) if isinstance(location, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidInputError(f"a journal is named by a path or a URL, not by {type(location).__name__}")
    try:
        is_name = bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise InvalidInputError("the path of a journal must not be empty, nor contain NUL or a lone surrogate")
    return _server_address(text) or Path(text)


def _server_address(text: str) -> ServerAddress | None:
    """Return the address when `text` is a URL, `None` when it is the path of a file.

    Raises:
        InvalidInputError: It is no URL of PostgreSQL. The message does not quote it: it may hold a password.
    """
    if "://" not in text:
        return None
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in {_DRIVER, "postgresql"} or not url.database:
        raise InvalidInputError(
            "the journal is neither the path of a file nor like postgresql+psycopg://user@host/database"
        )
    # As libpq does: of a setting that is given twice, the last one counts, and the query's password before the other.
    secrets = {name: _last(value) for name, value in url.query.items() if _SECRET.search(name)}
    url = url.difference_update_query(secrets).set(drivername=_DRIVER)
    password = secrets.pop("password", None)
    return ServerAddress(url if password is None else url.set(password=password), secrets)


def _last(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else value[-1]
