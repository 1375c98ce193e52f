"""Dates as services write them: of jobs, and in the fields of an answer."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from attrs import frozen

_IMF: Final = "%a, %d %b %Y %H:%M:%S GMT"


@frozen
class Form:
    """How a service writes when something happened to a job.

    Attributes:
        zone: The end of the text: `Z`, an offset, or nothing, which stands for UTC.
        hours: The offset.
        digits: How many there are of a second's fraction; none for whole seconds.
    """

    zone: str
    hours: float
    digits: int

    def text(self, moment: float) -> str:
        """Return a moment, in seconds since the epoch, as this form shows it; digits beyond it are left out."""
        there = datetime.fromtimestamp(moment, timezone(timedelta(hours=self.hours)))
        fraction = f".{there.microsecond:06}000"[: self.digits + 1] if self.digits else ""
        return f"{there:%Y-%m-%dT%H:%M:%S}{fraction}{self.zone}"


def form_of(draw: random.Random) -> Form:
    """Return one of the forms."""
    zone, hours = draw.choice((("Z", 0.0), ("z", 0.0), ("+00:00", 0.0), ("+05:30", 5.5), ("-08:00", -8.0), ("", 0.0)))
    return Form(zone, hours, draw.choice((0, 3, 6, 9)))


def _written(pattern: str, hours: float = 0.0) -> Callable[[float], str]:
    return lambda moment: datetime.fromtimestamp(moment, timezone(timedelta(hours=hours))).strftime(pattern)


RETRY_DATES: Final[dict[str, tuple[float, Callable[[float], str]]]] = {
    "ahead": (86_400.0, _written(_IMF)),
    "behind": (-86_400.0, _written(_IMF)),
    "rfc850": (-3600.0, _written("%A, %d-%b-%y %H:%M:%S GMT")),
    "asctime": (7200.0, _written("%a %b %e %H:%M:%S %Y")),
    "offset": (0.0, _written("%a, %d %b %Y %H:%M:%S +0530", 5.5)),
    "named": (-30.0, _written("%a, %d %b %Y %H:%M:%S EST", -5.0)),
}
"""By a word: how many seconds the clock is ahead by which a server writes a Retry-After, and the form of that."""


def field_of(moment: float) -> str:
    """Return a moment as the field Date has it."""
    return datetime.fromtimestamp(moment, UTC).strftime(_IMF)
