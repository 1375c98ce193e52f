"""The limits of a run, and those that a journal keeps for all runs and workers, checked."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._validation import MAX_COUNT, checked_count, checked_seconds, checked_span, validator

__all__ = ["FleetLimits", "Kept", "Limits", "Rate", "given", "in_force"]

Kept = Literal["kept"]
"""A setting of a run that is taken from the limits which the journal keeps."""
_LONGEST_SECONDS: Final = 366 * 86_400.0  # a slot is kept that long where the journal's `unknown_for` is `None`


@frozen
class Rate:
    """At most `count` creates in any span of `per` seconds.

    Each POST counts until `per` seconds after it was answered or given up: also one that repeats a create after a 429
    or 401, and one that an earlier run or another owner of the journal has sent. The first `count` creates go at once,
    the others as the span moves on: `Rate(100, per=3600)` sends 100 and then none for an hour, `Rate(1, per=36)`
    spaces as many evenly.

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
_polls_or_none: Final = validator(checked_seconds, optional=True, unit="polls per second")
_span: Final = validator(checked_span, zero=True)
_span_or_none: Final = validator(checked_span, optional=True, zero=True)
_timeout: Final = validator(checked_span, optional=True)


@frozen
class Limits:
    """The settings of `run_batch`, which documents them.

    Raises:
        InvalidInputError: A setting is invalid.
    """

    max_active: int = field(default=20, validator=_count)
    create_rate: Rate | None = field(default=None, validator=_rate_or_none)
    timeout: float | None = field(default=1800.0, validator=_timeout)
    max_failures: int | None = field(default=None, validator=_count_or_none)
    limit: int | None = field(default=None, validator=_count_or_none)
    max_sending: int = field(default=10, validator=_count)
    unknown_for: float = field(default=600.0, validator=_span)


@frozen
class FleetLimits:
    """The limits that a journal keeps: of each run and worker of a file, of all processes together on PostgreSQL.

    Attributes:
        max_active: How many items may have an agent at work, up to 1,000,000,000; `None` for any number on PostgreSQL,
            and for the default of `run_batch` in each run.
        create_rate: How many creates may be sent in any span of time, of each project or of all; `None` for any number.
        unknown_for: Seconds for which an unknown item counts as active, since its agent may be at work; 0 for not at
            all, `None` for as long as it is unknown. For its own project it counts whole; for any other project all of
            them together count as half of `max_active` at most, rounded down.
        timeout: Seconds that the create and the wait of an item may take together in one run; `None` for ever.
        max_sending: How many creates each process has under way at once, up to 1,000,000,000.
        polls_per_second: How many polls may start per second, above 0; `None` for any number. The sessions of a process
            share it equally. On PostgreSQL the processes that poll share 95 % of it equally. One that comes polls
            nothing until the others have given up its share, within a quarter of the seconds after which an owner
            counts as dead.

    Raises:
        InvalidInputError: A setting is invalid.
    """

    max_active: int | None = field(default=None, validator=_count_or_none)
    create_rate: Rate | None = field(default=None, validator=_rate_or_none)
    unknown_for: float | None = field(default=600.0, validator=_span_or_none)
    timeout: float | None = field(default=1800.0, validator=_timeout, kw_only=True)
    max_sending: int = field(default=10, validator=_count, kw_only=True)
    polls_per_second: float | None = field(default=None, validator=_polls_or_none, kw_only=True)


def given(**settings: Any) -> dict[str, Any]:
    """Return the settings that are given, without those that are to be taken from the journal.

    Raises:
        InvalidInputError: A setting is invalid.
    """
    found = {name: value for name, value in settings.items() if not (isinstance(value, str) and value == "kept")}
    Limits(**found)
    return found


def in_force(kept: FleetLimits, settings: Mapping[str, Any]) -> Limits:
    """Return the settings of a run: those that were given, else those that its journal keeps, else the defaults."""
    of_journal = {
        "create_rate": kept.create_rate,
        "timeout": kept.timeout,
        "max_sending": kept.max_sending,
        "unknown_for": _LONGEST_SECONDS if kept.unknown_for is None else kept.unknown_for,
        **({} if kept.max_active is None else {"max_active": kept.max_active}),
    }
    return Limits(**{**of_journal, **settings})
