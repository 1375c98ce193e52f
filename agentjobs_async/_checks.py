"""What numbers and callables among the settings must be. One wording for all of them."""

import inspect
from math import inf
from sys import float_info
from typing import Any, Final, TypeVar

from agentjobs_async.errors import InvalidInputError

__all__ = ["checked_count", "checked_instance", "checked_seconds", "checked_timeout", "is_async"]

T = TypeVar("T")

_WRITTEN_OUT_BITS: Final = 128


def checked_seconds(name: str, value: Any, *, zero: bool = False, unit: str = "seconds") -> float:
    """Give a finite number of seconds above 0, or from 0 on with `zero`.

    Raises:
        InvalidInputError: It is something else; a bool is no number.
    """
    bound = "from 0 on" if zero else "above 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{name} must be a number of {unit} {bound}, not {type(value).__name__}")
    if not 0 <= value <= float_info.max or (value == 0 and not zero):
        raise InvalidInputError(f"{name} must be a finite number of {unit} {bound}, not {_shown(value)}")
    return value


def checked_timeout(value: Any) -> float | None:
    """Give a wait's timeout: seconds above 0, or `None` for ever.

    Raises:
        InvalidInputError: It is something else.
    """
    if value is None or (type(value) is float and 0.0 < value < inf):
        return value
    if isinstance(value, float) and value == inf:
        raise InvalidInputError("timeout must be finite; None waits for ever")
    return checked_seconds("timeout", value)


def checked_count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """Give a whole number of at least `least`, and at most `most` where that is given.

    Raises:
        InvalidInputError: It is something else; a bool is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInputError(f"{name} must be a whole number of at least {least}, not {_shown(value)}")
    if most is not None and value > most:
        raise InvalidInputError(f"{name} must be at most {most}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _WRITTEN_OUT_BITS:
        return "one so large"
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def checked_instance(name: str, value: object, kind: type[T]) -> T | None:
    """Give `value` when it is of `kind`, or `None`.

    Raises:
        InvalidInputError: It is something else.
    """
    if value is not None and not isinstance(value, kind):
        raise InvalidInputError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def is_async(value: object) -> bool:
    """Tell whether calling `value` gives a coroutine that nobody would await."""
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__)
