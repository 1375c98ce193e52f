"""Reading a service file: TOML, in which every name must be a known one."""

import os
from collections.abc import Callable, Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from agentjobs_async._text import one_line, suggestion
from agentjobs_async.errors import InvalidInputError

T = TypeVar("T")

OF_THE_SESSION: Final = ("base_url", "key_env", "headers")
"""The names in a service file that are none of a dialect."""

_ELSEWHERE: Final = {
    "api_key": "; the key stays out of the file: key_env names the variable that holds it",
    "key": "; the key stays out of the file: key_env names the variable that holds it",
    "project": "; the project is given by --project, or as project_id to the session",
    "project_id": "; the project is given by --project, or as project_id to the session",
    "proxy": "; the proxy is given by --proxy or the environment, or as proxy to the session",
}
"""Where what users look for in the file is given."""

_LONGEST_FILE: Final = 1_048_576  # bytes: it may be a device without end


def read_toml(path: str | PathLike[str], read: Callable[[Mapping[str, Any]], T]) -> T:
    """Return what `read` makes of the document in a file.

    Raises:
        InvalidInputError: The file can't be read, or is no TOML; or `read` refuses it. The message begins with the name
            of the file.
    """
    try:
        return read(_document(path))
    except InvalidInputError as error:
        defect = error.message
    raise InvalidInputError(f"{one_line(os.fspath(path), 200)}: {defect}")


def dialect_settings(document: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the settings of a dialect in a service file.

    Args:
        document: The document.
        names: The names of all settings of a dialect.

    Raises:
        InvalidInputError: A name is neither one of these nor one that a session reads; or a setting stands in a table
            below, as one that was added at the end of a file.
    """
    known = (*OF_THE_SESSION, *names)
    for name in document:
        if name not in known:
            hint = _ELSEWHERE.get(name) or suggestion(name, known) or f"; the settings are {', '.join(known)}"
            raise InvalidInputError(f"unknown setting {one_line(name, 60)!r}{hint}")
    for table in ("fields", "statuses", "headers"):
        _check_table(table, document.get(table), known)
    settings = {name: value for name, value in document.items() if name in names}
    if isinstance(settings.get("fields"), Mapping):
        settings["fields"] = _dotted(settings["fields"])
    return settings


def _check_table(table: str, members: object, settings: Collection[str]) -> None:
    """Check that a table holds no setting, which would have no effect there."""
    for name in members if isinstance(members, Mapping) else ():
        if name in settings:
            raise InvalidInputError(f"{name} stands in the table [{table}]: move it above the first table of the file")


def _document(path: str | PathLike[str]) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - few sessions read a file

    try:
        with Path(path).open("rb") as stream:
            text = stream.read(_LONGEST_FILE).decode()
        return tomllib.loads(text)
    except OSError as error:
        defect = f"it can't be read: {error.strerror}"
    except UnicodeDecodeError:
        defect = "it is no text in UTF-8"
    except tomllib.TOMLDecodeError as error:
        defect = f"it is no TOML: {error}"
    except (ValueError, RecursionError):  # a NUL in the path, too
        defect = "it has a number or nesting out of bounds, or its name is none"
    raise InvalidInputError(defect)


def _dotted(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with the members of a table `source` under dotted names: TOML reads `source.ref = "ref"` as one."""
    found: dict[str, Any] = {}
    for name, member in value.items():
        if isinstance(member, Mapping):
            found |= {f"{name}.{inner}": path for inner, path in member.items()}
        else:
            found[name] = member
    return found
