"""The service file: one TOML file that names a service, where its key is, its dialect, and headers of one's own."""

import os
import re
from collections.abc import Mapping
from os import PathLike
from typing import Any, Final

from attrs import field, frozen

from agentjobs_async._dialect.dialect import SETTINGS, Dialect
from agentjobs_async._dialect.header_fields import SecretText, check_names, checked_headers
from agentjobs_async._dialect.toml_file import dialect_settings, read_toml
from agentjobs_async._text import one_line
from agentjobs_async.errors import InvalidInputError

_ENV: Final = "env"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@frozen
class ServiceFile:
    """What a service file says.

    Attributes:
        dialect: The dialect.
        base_url: The address of the service; `None` where the file has none.
        key_env: The environment variable that holds the key; `None` where the file names none.
        headers: The headers as the file has them: each value a text, or the variable that holds it.
    """

    dialect: Dialect
    base_url: str | None = None
    key_env: str | None = None
    headers: Mapping[str, "str | Variable"] = field(factory=dict, repr=False)  # they may be secrets

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a session: those that are given, and for the others what the file says.

        Raises:
            InvalidInputError: A variable that is needed is not set, or a value is no value of a header.
        """
        own = {"headers": self.values_of_headers() | checked_headers(given.get("headers") or {})}
        key = {"api_key": self.key()} if given.get("api_key") is None else {}
        return {"base_url": self.base_url, "dialect": self.dialect, **key, **_given(given), **own}

    def values_of_headers(self) -> dict[str, str]:
        """Return the headers with their values, those from the environment marked as secrets.

        Raises:
            InvalidInputError: A variable is not set, or a value is no value of a header.
        """
        values = {
            name: value.read(f"the header {name}") if isinstance(value, Variable) else value
            for name, value in self.headers.items()
        }
        return checked_headers(values)

    def key(self) -> str | None:
        """Return the key from the variable that the file names; `None` where it names none.

        Raises:
            InvalidInputError: The variable is not set.
        """
        return None if self.key_env is None else str(Variable(self.key_env).read("the key"))


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


@frozen
class Variable:
    """An environment variable that holds a secret.

    Attributes:
        name: Its name.
    """

    name: str

    def read(self, what: str) -> SecretText:
        """Return what it holds.

        Args:
            what: The setting that it is read for, for the error.

        Raises:
            InvalidInputError: It is not set, or empty.
        """
        value = os.environ.get(self.name)
        if not value:
            raise InvalidInputError(f"{what} is read from {self.name}, which is not set in the environment")
        return SecretText(value)


def read_service_file(path: str | PathLike[str]) -> ServiceFile:
    """Return what a service file says, checked; the environment is not read.

    Raises:
        InvalidInputError: It can't be read, is no TOML, or has an unknown or invalid setting. The message begins with
            the name of the file.
    """
    return read_toml(path, _service_file)


def settings_in(path: str | PathLike[str], given: Mapping[str, Any]) -> dict[str, Any] | InvalidInputError:
    """Return the settings of a session, or the error of `ServiceFile.settings`, without frames that hold secrets."""
    try:
        return read_service_file(path).settings(given)
    except InvalidInputError as error:
        return error.with_traceback(None)


def _service_file(document: Mapping[str, Any]) -> ServiceFile:
    dialect = Dialect(**dialect_settings(document, SETTINGS))
    return ServiceFile(
        dialect,
        _text_or_none(document, "base_url"),
        _key_env(document),
        _headers(document.get("headers", {}), dialect),
    )


def _text_or_none(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise InvalidInputError(f"{name} must be a text that is not empty, not {one_line(repr(value), 60)}")


def _key_env(document: Mapping[str, Any]) -> str | None:
    name = document.get("key_env")
    if name is not None:
        _check_variable("key_env", name, "the key")
    return name


def _check_variable(setting: str, name: object, secret: str) -> None:
    """Check the name of a variable; it is not quoted, since it may be the secret itself."""
    if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None:
        raise InvalidInputError(
            f"{setting} must be the name of an environment variable, letters, digits and _, not {secret} itself"
        )


def _headers(table: object, dialect: Dialect) -> dict[str, str | Variable]:
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"headers must be a table, [headers], not {type(table).__name__}")
    found = {name: _variable_or_value(name, value) for name, value in table.items()}
    checked_headers({name: "unset" if isinstance(value, Variable) else value for name, value in found.items()})
    check_names(found, dialect.own_headers)
    return found


def _variable_or_value(name: str, value: object) -> Any:
    if not isinstance(value, Mapping):
        return value
    variable = value.get(_ENV)
    if set(value) != {_ENV} or not isinstance(variable, str) or not variable:
        raise InvalidInputError(f'the header {one_line(name, 60)} must be a text or {{env = "NAME"}}')
    _check_variable(f"env of the header {one_line(name, 60)}", variable, "the value")
    return Variable(variable)
