"""The header fields that users name: which names and values leave the framing and the key alone."""

import re
from collections.abc import Collection, Mapping
from typing import Final

from agentjobs_async._text import one_line
from agentjobs_async.errors import InvalidInputError

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_FRAMING: Final = frozenset(
    {
        *("host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"),
        *("accept-encoding", "range"),
    }
)
_FRAMING_PREFIXES: Final = ("content-", "if-", "proxy-")
_IDEMPOTENCY_KEY: Final = "idempotency-key"  # the usual name, in lower case; two creates must never have the same one


class SecretText(str):
    """A text that is masked everywhere, however short it is, and is never shown by its repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def checked_header_name(name: str, value: object) -> str:
    """Return `value`, the name of a header field that a dialect adds to requests.

    Args:
        name: The setting's name, for error messages.
        value: The value to check.

    Raises:
        InvalidInputError: It is no name of a header field, or that of one which frames the request.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be the name of a header, not {type(value).__name__}")
    if not _NAME.fullmatch(value):
        shown = one_line(value, 60)
        raise InvalidInputError(f"{name} must be the name of a header, letters, digits and -, not {shown!r}")
    if value.lower() in _FRAMING or value.lower().startswith(_FRAMING_PREFIXES):
        raise InvalidInputError(f"{name} must not be {value}: the client itself sets it for each request")
    return value


def checked_headers(headers: object) -> dict[str, str]:
    """Return `headers`, the user's own fields of each request. An error never quotes a value.

    Args:
        headers: The fields by their names.

    Raises:
        InvalidInputError: It is not a mapping of texts; a name is none, is that of a field that frames the request, is
            Idempotency-Key, or comes twice; or a value is empty, or not visible ASCII with spaces between on one line.
    """
    if not isinstance(headers, Mapping):
        raise InvalidInputError(f"headers must be a mapping of names to values, not {type(headers).__name__}")
    names: set[str] = set()
    for name, value in headers.items():
        if isinstance(name, str) and not _NAME.fullmatch(name):  # not quoted: it may be "Name: value", or a value
            raise InvalidInputError("each name of headers must be the name of a header alone: letters, digits and -")
        lower = checked_header_name("each name of headers", name).lower()
        if lower == _IDEMPOTENCY_KEY:
            raise InvalidInputError(
                f"headers must not have {name}, which would be the same for all creates: set idempotency_header of the"
                " dialect where the service honours it"
            )
        if lower in names:
            raise InvalidInputError(f"headers has {name} twice: the case of letters makes no difference")
        names.add(lower)
        _check_value(name, value)
    return dict(headers)


def check_names(names: Collection[str], taken: Collection[str]) -> None:
    """Check that no header is set twice.

    Raises:
        InvalidInputError: One of `names` is among the names that another setting has `taken`.
    """
    others = {other.lower() for other in taken}
    for name in names:
        if name.lower() in others:
            raise InvalidInputError(f"headers must not have {name}: the dialect or another setting sets it")


def _check_value(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"the header {name} must be a string, not {type(value).__name__}")
    if not value:
        raise InvalidInputError(f"the header {name} is empty: leave it out")
    if not _VALUE.fullmatch(value):
        raise InvalidInputError(
            f"the header {name} must be visible ASCII on one line, without spaces around it (a stray line break often"
            " comes from reading a file: strip it)"
        )
