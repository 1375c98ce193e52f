"""The settings of a session: from its arguments or from the environment, checked."""

import os
from collections.abc import Callable
from typing import Final, TypeVar

from agentjobs_async._secrets import ApiKey
from agentjobs_async._version import __version__
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import checked_id

__all__ = ["checked_flag", "checked_key", "checked_user_agent", "default_project", "setting"]

T = TypeVar("T")

_PROJECT: Final = "AGENTJOBS_PROJECT_ID"


def setting(name: str, value: str | None, variable: str, checked: Callable[[str], T]) -> T:
    """Give an argument, or what the environment has for it, as `checked` gives it; an empty variable counts as none.

    Raises:
        InvalidInputError: There is neither, or `checked` refuses it; then the error says where it was taken from.
    """
    if value is not None:
        return checked(value)
    found = os.environ.get(variable)
    if not found:
        raise InvalidInputError(f"{name} is missing: pass {name}=... or set {variable} in the environment")
    try:
        return checked(found)
    except InvalidInputError as error:
        defect = error.message
    raise InvalidInputError(f"{defect} (it was taken from {variable})")


def default_project(value: str | None) -> str | None:
    """Give the project of calls that name none; `None` when it is given nowhere.

    Raises:
        InvalidInputError: It is no id.
    """
    if value is None and not os.environ.get(_PROJECT):
        return None
    return setting("project_id", value, _PROJECT, lambda project: checked_id("project_id", project))


def checked_key(value: str | None) -> ApiKey | InvalidInputError:
    """Give the key, or the error that refuses it, without the frames that hold it."""
    try:
        return setting("api_key", value, "AGENTJOBS_API_KEY", ApiKey)
    except InvalidInputError as error:
        return error.with_traceback(None)


def checked_flag(name: str, value: object) -> bool:
    """Give a bool.

    Raises:
        InvalidInputError: It is something else.
    """
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def checked_user_agent(value: object) -> str:
    """Give the User-Agent header; `None` names this package.

    Raises:
        InvalidInputError: It is no printable ASCII.
    """
    if value is None:
        return f"agentjobs-async/{__version__}"
    if not isinstance(value, str) or not value.strip() or not (value.isascii() and value.isprintable()):
        raise InvalidInputError("user_agent must be printable ASCII on one line")
    return value
