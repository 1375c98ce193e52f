"""Text of prompts and servers, made safe to show: without what a terminal or a browser would act on."""

import math
import re
from datetime import datetime
from typing import Final

__all__ = ["ACTING", "decimal", "is_formula", "link_or_none", "milliseconds", "seconds_between", "shown", "span_text"]

ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff"
    "\U000e0000-\U000e007f]"
)
"""Control characters but for tab and line feed, direction marks, invisible characters, and what is no character."""
_LINK: Final = re.compile(r"https?://[^\s\"'<>`\\]+", re.IGNORECASE)
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n]")  # what a cell begins with that a spreadsheet runs
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_TEN_SECONDS: Final = 10
_MINUTE_SECONDS: Final = 60
_HOUR_SECONDS: Final = 3600


def shown(text: str) -> str:
    """Return a whole text, with the characters that act on a screen escaped as by `repr`.

    Tabs and line feeds stay; a carriage return before a line feed is left out.
    """
    return ACTING.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def link_or_none(text: str | None) -> str | None:
    """Return `text` if it is an http or https link without characters that need quoting; `None` otherwise."""
    return text if text is not None and _LINK.fullmatch(text) and not ACTING.search(text) else None


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet may run a cell of this text as a formula; a number is none."""
    return _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None


def milliseconds(time: datetime | None) -> int | None:
    """Return a time in whole milliseconds since the epoch."""
    return None if time is None else round(time.timestamp() * 1000)


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    """Return the seconds from `start` to `end`, to a millisecond and at least 0; `None` where one is missing."""
    begun, ended = milliseconds(start), milliseconds(end)
    return None if begun is None or ended is None else max(ended - begun, 0) / 1000


def decimal(value: float, digits: int) -> str:
    """Return a number with `digits` decimal places, a half rounded up: as the page's script does it."""
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:,.{digits}f}"


def _decimal_places(seconds: float) -> int:
    """Return how many decimal places say enough of a span below a minute."""
    if seconds < 1:
        return 2
    return 1 if seconds < _TEN_SECONDS else 0


def span_text(seconds: float) -> str:
    """Return a span of time as people say it: `4.2 s`, `3 min 12 s`, `2 h 05 min`; as the page's script does it.

    No line ends before a unit.
    """
    whole = math.floor(seconds + 0.5)
    if whole < _MINUTE_SECONDS:
        digits = _decimal_places(seconds)
        number = decimal(seconds, digits).rstrip("0").rstrip(".") if digits else whole
        return f"{number if seconds else 0}\u00a0s"
    minutes, rest = divmod(whole, _MINUTE_SECONDS)
    if whole < _HOUR_SECONDS:
        return f"{minutes}\u00a0min {rest}\u00a0s" if rest else f"{minutes}\u00a0min"
    hours, minutes = divmod(minutes, _MINUTE_SECONDS)
    return f"{hours}\u00a0h {minutes:02}\u00a0min" if minutes else f"{hours}\u00a0h"
