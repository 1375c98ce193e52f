"""Limits as they are typed and shown: rates, jobs at once, times; and those that a journal keeps."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import attrs

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.batch import FleetLimits, Journal, Rate
from agentjobs_async.cli._output.screen import Screen

__all__ = ["duration_of", "kept_limits", "limits_of", "rate_of", "rate_text"]

T = TypeVar("T")

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WORDS: Final = r"/all|/burst|/all/burst|/burst/all"
_RATE: Final = re.compile(rf"(?P<count>0{{0,9}}[1-9][0-9]{{0,18}})/(?P<unit>[smhd])(?P<words>{_WORDS})?")
_DURATION: Final = re.compile(r"(?P<count>[0-9]{1,9}(\.[0-9]{1,9})?)(?P<unit>[smhd])")
_COUNT: Final = re.compile("[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_SHOWN: Final = 60  # characters of what was typed, in a message


def rate_of(text: str) -> Rate | None:
    """Read a rate such as `100/h`; `none` is no limit.

    It is one of each project, and evenly spaced; `100/h/all` is one of all projects together, and `100/h/burst` begins
    with all of its creates at once.

    Raises:
        InvalidInputError: It can't be read.
    """
    if text == "none":
        return None
    found = _RATE.fullmatch(text)
    if found is None:
        shown = one_line(text, _SHOWN) or "an empty text"
        raise InvalidInputError(
            f"--create-rate: {shown} is neither like 100/h (s, m, h, d), 100/h/all or 100/h/burst, nor none"
        )
    words = (found["words"] or "").split("/")
    return Rate(
        int(found["count"]),
        per=_UNITS[found["unit"]],
        scope="all" if "all" in words else "project",
        spread="burst" not in words,
    )


def rate_text(rate: Rate) -> str:
    """Return the text of which `rate_of` makes `rate`; one of another span is shown in seconds."""
    unit = next((unit for unit, seconds in _UNITS.items() if seconds == rate.per), f"{rate.per:g} s")
    return f"{rate.count}/{unit}{'/all' * (rate.scope == 'all')}{'/burst' * (not rate.spread)}"


def duration_of(option: str, text: str) -> float:
    """Read a time such as `90s`, `5h` or `1.5d`, and return its seconds.

    Raises:
        InvalidInputError: It can't be read, or it is 0.
    """
    found = _DURATION.fullmatch(text)
    seconds = float(found["count"]) * _UNITS[found["unit"]] if found else 0.0
    if not seconds:
        raise InvalidInputError(f"{option}: {one_line(text, _SHOWN)} is no time such as 90s, 30m, 5h or 1d")
    return seconds


def limits_of(
    max_active: str | None, create_rate: str | None, polls_per_second: str | None
) -> dict[str, int | float | Rate | None]:
    """Read limits as they are typed, `none` for no limit; those that are `None` are left out.

    Raises:
        InvalidInputError: One can't be read.
    """
    limits: dict[str, int | float | Rate | None] = {}
    if max_active is not None:
        limits["max_active"] = _number("--max-active", max_active, _COUNT, int, "a number of at least 1")
    if create_rate is not None:
        limits["create_rate"] = rate_of(create_rate)
    if polls_per_second is not None:
        number = _number("--polls-per-second", polls_per_second, _DECIMAL, float, "a number above 0")
        limits["polls_per_second"] = number
    return limits


def _number(option: str, text: str, form: re.Pattern[str], kind: Callable[[str], T], words: str) -> T | None:
    """Read a number above 0; `none` is `None`."""
    if text == "none":
        return None
    if not form.fullmatch(text) or not kind(text):
        raise InvalidInputError(f"{option}: {one_line(text, _SHOWN)} is neither {words} nor none")
    return kind(text)


async def kept_limits(screen: Screen, journal: Journal, given: Mapping[str, Any]) -> FleetLimits:
    """Keep the limits that are given in the journal; return all that it keeps, and show those of earlier commands."""
    before = await journal.limits()
    limits = attrs.evolve(before, **given)
    if limits != before:
        await journal.set_limits(limits)
    if words := _limits_text(before, given):
        screen.notice(f"With the limits that the journal keeps: {words}.")
    return limits


def _limits_text(limits: FleetLimits, given: Collection[str]) -> str:
    """Return in words the limits that are not the defaults, without those that are given."""
    timeout = "no time limit for a job" if limits.timeout is None else f"{limits.timeout:g} s for each job"
    kept = "their slots for ever" if limits.unknown_for is None else f"their slots for {limits.unknown_for:g} s"
    if limits.unknown_for == 0:
        kept = "no slot"
    words = {
        "create_rate": None if limits.create_rate is None else f"creates at {rate_text(limits.create_rate)}",
        "max_active": f"{limits.max_active} jobs at once",
        "timeout": timeout,
        "max_sending": f"{limits.max_sending} creates in flight",
        "unknown_for": f"unknown items keep {kept}",
    }
    default = FleetLimits()
    changed = [name for name in words if getattr(limits, name) != getattr(default, name) and name not in given]
    return ", ".join(filter(None, map(words.get, changed)))
