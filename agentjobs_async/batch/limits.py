"""The limits of runs, workers and durable jobs, checked."""

from collections.abc import Mapping
from math import inf
from typing import Any, Final, Literal

from attrs import evolve, field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._validation import (
    MAX_COUNT,
    checked_count,
    checked_instance,
    checked_seconds,
    checked_span,
    validator,
)

__all__ = ["UNITS", "Kept", "Limits", "Rate", "checked_limits", "given", "in_force", "own_polls", "rate_text"]

Kept = Literal["kept"]
"""A setting of a run that is taken from the limits which the journal keeps."""
UNITS: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
"""The units of a span as text, in seconds; the first one of which it is a whole number is used."""


@frozen
class Rate:
    """At most `count` creates in any span of `per` seconds.

    `Rate(100, per=3600)` sends 100 creates at once, and the next ones when these are an hour old. `Rate(1, per=36)`
    sends as many in an hour, evenly spaced.

    Each POST counts, until `per` seconds after it was answered or given up. That includes those that repeat a create
    after a 429 or 401, and those of earlier runs and of other owners of the journal.

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


def rate_text(rate: Rate) -> str:
    """Return a rate as the command line reads it: `100/h`, `1/36s`, `100/h/all`."""
    unit = next((unit for unit, seconds in UNITS.items() if rate.per % seconds == 0), "s")
    number = f"{rate.per / UNITS[unit]:.9f}".rstrip("0").rstrip(".")
    return f"{rate.count}/{'' if number == '1' else number}{unit}{'/all' * (rate.scope == 'all')}"


def _checked_rate(name: str, value: object) -> None:
    if not isinstance(value, Rate):
        kind = type(value).__name__
        raise InvalidInputError(f"{name} must be a Rate, such as Rate(100, per=3600), or None, not {kind}")


_count_or_none: Final = validator(checked_count, optional=True, most=MAX_COUNT)
_rate_or_none: Final = validator(_checked_rate, optional=True)
_polls_or_none: Final = validator(checked_seconds, optional=True, unit="polls per second")
_span_or_none: Final = validator(checked_span, optional=True, zero=True)
_timeout: Final = validator(checked_span, optional=True)


@frozen(kw_only=True)
class Limits:
    """How much goes on at once. `None` is no limit, everywhere.

    A journal keeps its limits, for all that work on it. On PostgreSQL, `max_active`, `create_rate`, `unknown_for` and
    `polls_per_second` hold for all processes together. In a file, they hold for each run, worker and `DurableJobs` by
    itself.

    Attributes:
        max_active: How many items may have an agent at work, up to 1,000,000,000.
        max_sending: How many creates each run may have under way at once. One crash leaves at most so many unknown.
        create_rate: How many creates may be sent in any span of time, of each project or of all.
        polls_per_second: How many polls may start per second, above 0. The owners of the journal share it equally. A
            new owner polls nothing until the others have counted it: for at most a quarter of their `owner_timeout`.
        unknown_for: Seconds for which an unknown item counts as active, since its agent may be at work. 0 means not at
            all, `None` as long as it is unknown. In its own project, each unknown item counts. In any other project,
            all of them together count as at most half of `max_active`, rounded down.
        timeout: Seconds that the create and the wait of an item may take together in one run.

    Raises:
        InvalidInputError: A limit is invalid.
    """

    max_active: int | None = field(default=20, validator=_count_or_none)
    max_sending: int | None = field(default=10, validator=_count_or_none)
    create_rate: Rate | None = field(default=None, validator=_rate_or_none)
    polls_per_second: float | None = field(default=None, validator=_polls_or_none)
    unknown_for: float | None = field(default=600.0, validator=_span_or_none)
    timeout: float | None = field(default=1800.0, validator=_timeout)


def checked_limits(limits: Limits | Kept) -> Limits | Kept:
    """Return the limits of a run, or "kept".

    Raises:
        InvalidInputError: It is neither.
    """
    if limits != "kept":
        checked_instance("limits", limits, Limits)
    return limits


def given(**limits: Any) -> dict[str, Any]:
    """Return the limits that are given, without those that are to be taken from the journal.

    Raises:
        InvalidInputError: A limit is invalid.
    """
    found = {name: value for name, value in limits.items() if not (isinstance(value, str) and value == "kept")}
    Limits(**found)
    return found


def in_force(kept: Limits, limits: Limits | Kept, own: Mapping[str, Any]) -> Limits:
    """Return the limits of a run: its `own`, over `limits`, over those that its journal keeps."""
    return evolve(kept if limits == "kept" else limits, **own)


def own_polls(limits: Limits | Kept) -> float | None:
    """Return the polls per second of a run's own limits, infinity for any number; `None` where it has none."""
    if limits == "kept":
        return None
    return inf if limits.polls_per_second is None else limits.polls_per_second
