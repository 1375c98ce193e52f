"""What a run may use, as its settings say, checked."""

from math import inf
from typing import Any

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch.pace import Rate

__all__ = ["FleetLimits", "Limits"]


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


@frozen
class FleetLimits:
    """What all processes that work on one journal may do together; the database keeps it.

    Attributes:
        max_active: How many items may have an agent at work; `None` for any number.
        create_rate: How many creates may go in any span of time; `None` for any number.
        unsure_for: Seconds for which an unknown item counts as active, since its agent may be at work; `None` for as
            long as it is unknown.

    Raises:
        InvalidInputError: One of them makes no sense.
    """

    max_active: int | None = field(default=None, validator=_count_or_none)
    create_rate: Rate | None = field(default=None, validator=_rate_or_none)
    unsure_for: float | None = field(default=3600.0, validator=_seconds_or_none)
