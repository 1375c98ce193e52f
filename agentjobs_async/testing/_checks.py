"""The checks of numbers in scripts and limits; each error names the setting."""

from collections.abc import Callable
from math import inf
from typing import Any

import attrs

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def is_number(value: object, kinds: type | tuple[type, ...] = (int, float)) -> bool:
    """Return whether a value is a number of one of these types; NaN, True and False are not."""
    return isinstance(value, kinds) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - only NaN differs from itself


def number(
    words: str,
    least: float,
    most: float = inf,
    *,
    above: bool = False,
    kinds: type | tuple[type, ...] = (int, float),
) -> Validator:
    """Return a validator of numbers from `least`, itself excluded if `above`, to `most`.

    Args:
        words: The bounds in words, for the error.
        least: The lower bound.
        most: The upper bound, included.
        above: Whether `least` itself is refused.
        kinds: The accepted types.
    """

    def check(_instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if not is_number(value, kinds) or not least <= value <= most or (above and value == least):
            raise ValueError(f"'{attribute.name}' must be {words}, not {value!r:.100}")

    return check
