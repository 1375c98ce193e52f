"""The error that names the extra of a library that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_EXTRAS: Final = {
    **dict.fromkeys(("click", "platformdirs", "rich"), "cli"),
    **dict.fromkeys(("filelock", "sqlalchemy"), "batch"),
    **dict.fromkeys(("procrastinate", "psycopg"), "procrastinate"),
    "jinja2": "report",
    "opentelemetry": "otel",
    "prometheus_client": "prometheus",
}
"""The extra of each library, by the name of its package."""


class MissingExtraError(ModuleNotFoundError):
    """A library of an extra is not installed; the message has the command that installs it."""


@contextmanager
def extra_named(importer: str, extra: str = "batch") -> Iterator[None]:
    """Return a block of imports whose error, if a library is missing, names the extra to install.

    Args:
        importer: What needs the libraries; the error begins with it.
        extra: The extra to name when a library of `batch` is missing: one that includes it, if the importer needs more.

    Raises:
        MissingExtraError: A library of an extra is missing.
        ModuleNotFoundError: Another module is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        found = _EXTRAS.get((error.name or "").partition(".")[0])
        if found is None:
            raise
        named = extra if found == "batch" else found
        install = f"pip install 'agentjobs-async[{named}]'"
        raise MissingExtraError(f"{importer} needs the extra {named}: {install}", name=error.name) from None
