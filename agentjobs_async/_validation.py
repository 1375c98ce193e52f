"""Checks of arguments and settings: each rule and its wording once, for the whole package."""

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from math import inf
from sys import float_info
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from attrs import astuple, has

from agentjobs_async._text import BETWEEN_IDS, one_line
from agentjobs_async.errors import InvalidInputError

T = TypeVar("T")

MAX_NAME_LENGTH: Final = 512  # characters; two ids, percent-encoded, fit the 8 KiB that servers allow for a line
MAX_COUNT: Final = 1_000_000_000  # fits a database's integer column, and is more than any service allows
_MAX_SPAN_SECONDS: Final = 1e9  # 31 years: sums with the time of day stay exact to a microsecond
_MIN_SPAN_SECONDS: Final = 1e-6  # the resolution of a database's clock
_MAX_SHOWN_BITS: Final = 128  # 39 digits; Python refuses to write out thousands of them
_CONTROL_OR_SURROGATE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ABSOLUTE: Final = re.compile(
    r"https?://(?:[^ \\/?#@:\[\]]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{0,5}))?(?:[/?#][^ \\]*)?",
    re.IGNORECASE | re.ASCII,
)
_WHITE_SPACE: Final = re.compile(r"\s")
_LAST_PORT: Final = 65_535  # TCP's 16 bits


def checked_name(name: str, value: object) -> str:
    """Return `value`: a string of 1 to 512 characters, without control characters and surrogates.

    Args:
        name: The parameter's name, for the error, here and in the other checks.
        value: The value to check.

    Raises:
        InvalidInputError: `value` is anything else.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be a string, not {type(value).__name__}")
    if not value or len(value) > MAX_NAME_LENGTH:
        raise InvalidInputError(f"{name} must have 1 to {MAX_NAME_LENGTH} characters, not {len(value)}")
    if _CONTROL_OR_SURROGATE.search(value):
        raise InvalidInputError(f"{name} must not contain control characters or surrogates: {one_line(value, 200)}")
    return value


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or address alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def checked_id(name: str, value: object) -> str:
    """Return `value`, a project id or job id: any name that can be one segment of a URL's path.

    Raises:
        InvalidInputError: `value` is not a string of 1 to 512 characters, contains control characters or surrogates, or
            is `.` or `..`.
    """
    text = checked_name(name, value)
    if text in {".", ".."}:
        raise InvalidInputError(f"{name} must not be {text!r}: it would change the path; pass the service's own id")
    return text


def checked_bare_id(value: object) -> str:
    """Return `value`, a job id passed without its project.

    Raises:
        InvalidInputError: `value` is not an id; or contains white space, so that it may as well be a prompt, which is
            not quoted; or `~.`, as a token does.
    """
    if isinstance(value, str) and _WHITE_SPACE.search(value):
        raise InvalidInputError(
            "job_id contains white space: pass it to create_job if it is a prompt, JobRef(project_id, job_id) if it is"
            " an id"
        )
    job_id = checked_id("job_id", value)
    if BETWEEN_IDS in job_id:
        raise InvalidInputError(
            f"job_id {one_line(job_id, 200)} contains {BETWEEN_IDS!r}, as tokens do: pass JobRef.from_token(text) if it"
            " is a token, JobRef(project_id, job_id) if it is an id"
        )
    return job_id


def checked_label(value: object) -> str | None:
    """Return `value`, the label of a job: a name as by `checked_name`, or `None`.

    Raises:
        InvalidInputError: `value` is anything else.
    """
    return None if value is None else checked_name("label", value)


def checked_prompt(name: str, value: object) -> str:
    """Return `value`, a prompt: a string with more than white space, which UTF-8 can encode.

    Raises:
        InvalidInputError: `value` is not a string, is empty or only white space, or has a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be a string, not {type(value).__name__}")
    if not value.strip():
        raise InvalidInputError(f"{name} is blank: it must say something")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        position = error.start + 1
    else:
        return value
    raise InvalidInputError(
        f"{name} is not valid Unicode: character {position} is a lone surrogate; check the encoding of its source"
    )


def checked_seconds(name: str, value: Any, *, zero: bool = False, unit: str = "seconds") -> float:
    """Return `value`, a finite number of seconds above 0; 0 is valid as well with `zero`.

    Raises:
        InvalidInputError: `value` is anything else; a bool is not a number.
    """
    bound = "from 0 on" if zero else "above 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{name} must be a number of {unit} {bound}, not {type(value).__name__}")
    if not 0 <= value <= float_info.max or (value == 0 and not zero):
        raise InvalidInputError(f"{name} must be a finite number of {unit} {bound}, not {_shown(value)}")
    return value


def checked_span(name: str, value: Any, *, zero: bool = False) -> float:
    """Return `value`, seconds that a database can hold: from a microsecond to 31 years; 0 as well with `zero`.

    Raises:
        InvalidInputError: `value` is anything else; a bool is not a number.
    """
    seconds = checked_seconds(name, value, zero=zero)
    if seconds and not _MIN_SPAN_SECONDS <= seconds <= _MAX_SPAN_SECONDS:
        raise InvalidInputError(f"{name} must be from 1 microsecond to 31 years, in seconds, not {_shown(value)}")
    return float(seconds)


def checked_timeout(value: Any) -> float | None:
    """Return `value`, the timeout of a wait: seconds above 0, or `None` for no limit.

    Raises:
        InvalidInputError: `value` is anything else; infinity is refused with a hint at `None`.
    """
    if value is None or (type(value) is float and 0.0 < value < inf):
        return value
    if isinstance(value, float) and value == inf:
        raise InvalidInputError("timeout must be finite; None waits for ever")
    return checked_seconds("timeout", value)


def checked_count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """Return `value`, a whole number from `least` to `most`; `None` for `most` sets no upper bound.

    Raises:
        InvalidInputError: `value` is anything else; a bool is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInputError(f"{name} must be a whole number of at least {least}, not {_shown(value)}")
    if most is not None and value > most:
        raise InvalidInputError(f"{name} must be at most {most:,}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        return "one so large"
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def checked_instance(name: str, value: object, kind: type[T]) -> T | None:
    """Return `value`, an instance of `kind` or `None`.

    Raises:
        InvalidInputError: `value` is anything else.
    """
    if value is not None and not isinstance(value, kind):
        found = "the class itself" if value is kind else type(value).__name__
        raise InvalidInputError(f"{name} must be of type {kind.__name__}, not {found}")
    return value


def validator(check: Callable[..., object], *, optional: bool = False, **options: Any) -> Callable[..., None]:
    """Return an attrs validator that calls `check(name, value, **options)`; with `optional`, not for `None`."""

    def validate(_instance: object, attribute: Any, value: object) -> None:
        if value is not None or not optional:
            check(attribute.name, value, **options)

    return validate


def moment_of(text: str) -> datetime | None:
    """Return the datetime of a text in ISO 8601 or RFC 3339, whose `t` and `z` may be lower case; `None` of any other.

    It is in UTC where the text has an offset, else naive.
    """
    try:
        moment = datetime.fromisoformat(f"{text[:-1]}Z" if text.endswith("z") else text)
        return moment if moment.tzinfo is None or moment.tzinfo is UTC else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def has_surrogates(value: object) -> bool:
    """Return whether `value`, a text or a mapping, sequence or attrs instance of any depth, has a lone surrogate."""
    left = [value]  # no recursion, which a deep document would exhaust
    while left:
        value = left.pop()
        if value is None:
            continue
        if isinstance(value, str):
            if not value.isascii() and _SURROGATE.search(value):
                return True
        elif isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            left += value
        elif has(type(value)):
            left += astuple(value, recurse=False)  # type: ignore[arg-type]  # `has` narrows the type, not the value
    return False


def is_async(value: object) -> bool:
    """Return whether calling `value` makes a coroutine, which a caller of plain functions would never await."""
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__)


def checked_flag(name: str, value: object) -> bool:
    """Return `value`, a bool.

    Raises:
        InvalidInputError: `value` is anything else.
    """
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def is_web_link(text: str) -> bool:
    """Return whether `text` is an absolute http(s) URL without userinfo and control characters."""
    parts = _ABSOLUTE.fullmatch(text) if text.isprintable() else None
    if parts is None or int(parts["port"] or 0) > _LAST_PORT:
        return False
    return text.isascii() or _has_plain_host(text)


def _has_plain_host(link: str) -> bool:
    """Return whether the host stays a host in NFKC, as a lookup reads it: `℀` would become `a/c`, and end the host."""
    try:
        urlsplit(link)
    except ValueError:
        return False
    return True
