"""The settings that bound a run or a fleet, checked."""

from typing import Final, Literal

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._validation import MAX_COUNT, checked_count, checked_span, validator

__all__ = ["FleetLimits", "Limits", "Rate"]


@frozen
class Rate:
    """At most `count` creates in any span of `per` seconds.

    Attributes:
        count: How many, up to 1,000,000,000.
        per: The span in seconds, up to 31 years.
        scope: `"project"` counts each project for itself, as the server does; `"all"` counts all of them together.

    Raises:
        InvalidInputError: `count` is not a whole number of at least 1, `per` is not a finite number above 0, one of
            them is out of bounds, or `scope` is another word.
    """

    count: int
    per: float
    scope: Literal["project", "all"] = field(default="project", kw_only=True)

    def __attrs_post_init__(self) -> None:
        checked_count("count", self.count, most=MAX_COUNT)
        checked_span("per", self.per)
        if self.scope not in ("project", "all"):  # a tuple: a value that is not hashable is refused, too
            raise InvalidInputError(f'scope must be "project" or "all", not {self.scope!r:.100}')


def _checked_rate(name: str, value: object) -> None:
    if not isinstance(value, Rate):
        kind = type(value).__name__
        raise InvalidInputError(f"{name} must be a Rate, such as Rate(100, per=3600), or None, not {kind}")


_count: Final = validator(checked_count, most=MAX_COUNT)
_count_or_none: Final = validator(checked_count, optional=True, most=MAX_COUNT)
_rate_or_none: Final = validator(_checked_rate, optional=True)
_span: Final = validator(checked_span, zero=True)
_span_or_none: Final = validator(checked_span, optional=True, zero=True)
_timeout: Final = validator(checked_span, optional=True)


@frozen
class Limits:
    """The settings of `run_batch`, which documents them.

    Raises:
        InvalidInputError: A setting is invalid.
    """

    max_active: int = field(validator=_count)
    create_rate: Rate | None = field(validator=_rate_or_none)
    timeout: float | None = field(validator=_timeout)
    max_failures: int | None = field(validator=_count_or_none)
    limit: int | None = field(validator=_count_or_none)
    max_sending: int = field(validator=_count)
    unknown_for: float = field(validator=_span)


@frozen
class FleetLimits:
    """What all processes that work on one journal may do together; the database keeps it.

    Attributes:
        max_active: How many items may have an agent at work; `None` for any number.
        create_rate: How many creates may go in any span of time, of each project or of all; `None` for any number.
        unknown_for: Seconds for which an unknown item counts as active, since its agent may be at work; 0 for not at
            all, `None` for as long as it is unknown. For its own project it counts whole; for any other project all of
            them together count as half of `max_active` at most, rounded down.

    Raises:
        InvalidInputError: A setting is invalid.
    """

    max_active: int | None = field(default=None, validator=_count_or_none)
    create_rate: Rate | None = field(default=None, validator=_rate_or_none)
    unknown_for: float | None = field(default=600.0, validator=_span_or_none)
