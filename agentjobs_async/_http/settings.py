"""The settings of a session, from its arguments or from the environment, checked."""

import os
from collections.abc import Callable
from typing import Final, TypeVar

from yarl import URL

from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.credentials import KeyOf
from agentjobs_async._http.urls import checked_base_url
from agentjobs_async._validation import checked_flag, checked_id
from agentjobs_async.errors import InvalidInputError

T = TypeVar("T")

_REQUIRED: Final = {"base_url": "AGENTJOBS_BASE_URL", "api_key": "AGENTJOBS_API_KEY"}
_PROJECT: Final = "AGENTJOBS_PROJECT_ID"


def missing_settings(**is_unset: bool) -> InvalidInputError | None:
    """Return the error that names every unset setting whose environment variable is unset or empty as well."""
    missing = [name for name, unset in is_unset.items() if unset and not os.environ.get(_REQUIRED[name])]
    if not missing:
        return None
    names, variables = " and ".join(missing), " and ".join(_REQUIRED[name] for name in missing)
    arguments = ", ".join(f"{name}=..." for name in missing)
    verb = "is" if len(missing) == 1 else "are"
    return InvalidInputError(f"{names} {verb} missing: pass {arguments} or set {variables} in the environment")


def _setting(value: str | None, variable: str, checked: Callable[[str], T]) -> T:
    """Return `checked(value)`; if `value` is `None`, the checked environment variable, where empty counts as unset.

    Raises:
        InvalidInputError: `checked` refuses the text; the error says so if it came from the variable.
    """
    if value is not None:
        return checked(value)
    try:
        return checked(os.environ.get(variable, ""))
    except InvalidInputError as error:
        defect = error.message
    raise InvalidInputError(f"{defect} (it was read from {variable})")


def checked_address(value: str | None, *, allow_insecure: bool) -> URL:
    """Return the address of the service, from `value` or the environment.

    Raises:
        InvalidInputError: Neither is set, or the text is no such address; or `allow_insecure` is not a bool.
    """
    insecure = checked_flag("allow_insecure", allow_insecure)
    return _setting(value, _REQUIRED["base_url"], lambda url: checked_base_url(url, allow_insecure=insecure))


def default_project(value: str | None) -> str | None:
    """Return the project of calls that name none, from `value` or the environment; `None` if neither is set.

    Raises:
        InvalidInputError: The text is not a valid id.
    """
    if value is None and not os.environ.get(_PROJECT):
        return None
    return _setting(value, _PROJECT, lambda project: checked_id("project_id", project))


def project_of_call(value: str | None, default: str | None) -> str:
    """Return the project of one call: `value`, or the session's `default`.

    Raises:
        InvalidInputError: `value` is not a valid id, or both are `None`.
    """
    if value is not None:
        return checked_id("project_id", value)
    if default is None:
        raise InvalidInputError(f"project_id is missing: pass it to the call or to the session, or set {_PROJECT}")
    return default


def checked_key(value: str | KeyOf | None) -> ApiKey | KeyOf | InvalidInputError:
    """Return the key, the callable that returns it, or the error that refuses it.

    The error's traceback is dropped: its frames have the key among their locals, which some tools show or send.
    """
    if callable(value):
        return value
    try:
        return _setting(value, _REQUIRED["api_key"], ApiKey)
    except InvalidInputError as error:
        return error.with_traceback(None)
