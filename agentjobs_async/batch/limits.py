"""What a run may use, as its settings say, checked."""

from math import inf
from typing import Any

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch.pace import Rate

__all__ = ["Limits"]


def _count(instance: object, attribute: Any, value: Any) -> None:
    del instance
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInputError(f"{attribute.name} must be a whole number of at least 1, not {value!r:.100}")


def _count_or_none(instance: object, attribute: Any, value: Any) -> None:
    if value is not None:
        _count(instance, attribute, value)


def _seconds_or_none(instance: object, attribute: Any, value: Any) -> None:
    del instance
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise InvalidInputError(f"{attribute.name} must be None or a finite number of seconds above 0")


def _rate_or_none(instance: object, attribute: Any, value: Any) -> None:
    del instance
    if value is not None and not isinstance(value, Rate):
        kind = type(value).__name__
        raise InvalidInputError(f"{attribute.name} must be a Rate, such as Rate(100, per=3600), or None, not {kind}")


@frozen
class Limits:
    """The settings of `run_batch`, which documents them.

    Raises:
        InvalidInputError: One of them makes no sense.
    """

    max_active: int = field(validator=_count)
    create_rate: Rate | None = field(validator=_rate_or_none)
    timeout: float | None = field(validator=_seconds_or_none)
    max_failures: int | None = field(validator=_count_or_none)
    limit: int | None = field(validator=_count_or_none)
    gate: int = field(validator=_count)
