"""Limits as they are typed and shown: rates, jobs at once, times; and those that a journal keeps."""

import math
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from agentjobs_async import InvalidInputError
from agentjobs_async._text import limit, one_line
from agentjobs_async._validation import MAX_COUNT
from agentjobs_async.batch import Limits, Rate
from agentjobs_async.batch.limits import UNITS, rate_text
from agentjobs_async.cli._output.screen import Screen

if TYPE_CHECKING:
    from agentjobs_async.batch import Journal

_RATE: Final = re.compile(
    r"(?P<count>0{0,9}[1-9][0-9]{0,18})/(?P<units>[0-9]{1,9}(\.[0-9]{1,9})?)?(?P<unit>[smhd])(?P<all>/all)?"
)
_DURATION: Final = re.compile(r"(?P<count>[0-9]{1,9}(\.[0-9]{1,9})?)(?P<unit>[smhd])")
_COUNT: Final = re.compile("[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(e[-+]?[0-9]{1,2})?")
_SHOWN: Final = 60  # characters of what was typed, in a message


def rate_of(text: str) -> Rate | None:
    """Read a rate such as `100/h`, `5/2h` or `1/36s`, of each project; `none` is no limit.

    `100/h/all` is one of all projects together.

    Raises:
        InvalidInputError: It can't be read.
    """
    if text == "none":
        return None
    found = _RATE.fullmatch(text)
    seconds = float(found["units"] or 1) * UNITS[found["unit"]] if found else 0.0
    if found is None or not seconds:
        raise InvalidInputError(
            f"{one_line(text, _SHOWN)} is no rate: write a count from 1 on and a span, such as 100/h or 1/36s"
            " (s, m, h or d); add /all for all projects together; or write none"
        )
    return Rate(int(found["count"]), per=seconds, scope="all" if found["all"] else "project")


def rate_words(rate: Rate) -> str:
    """Return what a rate allows: "at most 100 creates of each project in any span of 1 h"."""
    creates = "1 create" if rate.count == 1 else f"{rate.count:,} creates"
    whose = "all projects together" if rate.scope == "all" else "each project"
    return f"at most {creates} of {whose} in any span of {limit(rate.per)}"


def rate_notice(rate: Rate) -> str:
    """Return what a rate allows; and which rate spaces creates evenly, unless they would be less than 1 s apart."""
    words = f"--create-rate {rate_text(rate)}: {rate_words(rate)}"
    if rate.count == 1 or rate.per < rate.count:
        return f"{words}."
    return f"{words}; {rate_text(_evenly_spaced(rate))} spaces them evenly."


def _evenly_spaced(rate: Rate) -> Rate:
    """Return the rate of one create at a time that allows no more than `rate`; its span is rounded up to 3 digits."""
    seconds = rate.per / rate.count
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 2)
    return Rate(1, per=round(math.ceil(round(seconds / unit, 6)) * unit, 9), scope=rate.scope)


def duration_of(text: str) -> float:
    """Read a time such as `90s`, `5h` or `1.5d` as seconds.

    Raises:
        InvalidInputError: It can't be read, or it is 0.
    """
    found = _DURATION.fullmatch(text)
    seconds = float(found["count"]) * UNITS[found["unit"]] if found else 0.0
    if not seconds:
        raise InvalidInputError(f"{one_line(text, _SHOWN)} is no time such as 90s, 30m, 6h or 2d")
    return seconds


def number_of(text: str, *, unit: str = "", endless: str = "", zero: bool = False) -> float | None:
    """Read a number above 0.

    Args:
        text: What was typed.
        unit: What it counts, for the message.
        endless: What `none` means, which is then `None`; without, there must be a number.
        zero: Whether 0 is allowed as well.

    Raises:
        InvalidInputError: It can't be read, or is no such number.
    """
    if endless and text == "none":
        return None
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if 0 < number < math.inf or (zero and number == 0):
        return number
    wanted = f"a finite number{f' of {unit}' if unit else ''} {'from 0 on' if zero else 'above 0'}"
    raise InvalidInputError(f"{one_line(text, _SHOWN)} is not {wanted}{f', or none {endless}' if endless else ''}")


def whole_of(text: str, *, endless: str = "") -> int | None:
    """Read a whole number above 0; where `endless` says what `none` means, that is `None`.

    Raises:
        InvalidInputError: It can't be read, or is larger than any journal.
    """
    if endless and text == "none":
        return None
    if _COUNT.fullmatch(text) and 0 < int(text) <= MAX_COUNT:
        return int(text)
    wanted = f"a whole number from 1 to {MAX_COUNT:,}"
    raise InvalidInputError(f"{one_line(text, _SHOWN)} is not {wanted}{f', or none {endless}' if endless else ''}")


async def kept_limits(screen: Screen, journal: "Journal", given: Mapping[str, Any]) -> Limits:
    """Keep the given limits in the journal; return all that it keeps, and show those of earlier commands.

    The rate of the creates is shown in any case.
    """
    before = await journal.limits()
    limits = await changed_limits(journal, given)
    if words := _limits_text(before, given):
        screen.notice(f"With the limits that the journal keeps: {words}.")
    if limits.create_rate is not None:
        screen.notice(rate_notice(limits.create_rate))
    return limits


def limit_texts(limits: Limits) -> dict[str, str]:
    """Return the text of which its option reads each limit, by the name in `Limits`."""
    return {name: _limit_text(value) for name, value in attrs.asdict(limits, recurse=False).items()}


def _limit_text(value: float | Rate | None) -> str:
    if value is None:
        return "none"
    return rate_text(value) if isinstance(value, Rate) else f"{value:.15g}"


async def changed_limits(journal: "Journal", given: Mapping[str, Any]) -> Limits:
    """Keep the given limits in the journal, and return all that it keeps."""
    before = await journal.limits()
    limits = attrs.evolve(before, **given)
    if limits != before:
        await journal.set_limits(limits)
    return limits


def _limits_text(limits: Limits, given: Collection[str]) -> str:
    """Return in words the limits that are not the defaults, without those that are given, and without the rate."""
    timeout = "no time limit for a job" if limits.timeout is None else f"{limits.timeout:g} s for each job"
    active = "any number of jobs" if limits.max_active is None else f"{limits.max_active} jobs"
    sending = "any number of creates" if limits.max_sending is None else f"{limits.max_sending} create"
    polls = "any number of" if limits.polls_per_second is None else f"at most {limits.polls_per_second:g}"
    kept = "their slots for ever" if limits.unknown_for is None else f"their slots for {limits.unknown_for:g} s"
    if limits.unknown_for == 0:
        kept = "no slot"
    words = {
        "max_active": f"{active} at once",
        "timeout": timeout,
        "max_sending": f"{sending}{'s' * ((limits.max_sending or 1) != 1)} in flight",
        "polls_per_second": f"{polls} polls per second",
        "unknown_for": f"unknown items keep {kept}",
    }
    default = Limits()
    changed = [name for name in words if getattr(limits, name) != getattr(default, name) and name not in given]
    return ", ".join(filter(None, map(words.get, changed)))
