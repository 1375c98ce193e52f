"""Times of day and spans of time in words."""

import time
from datetime import UTC, datetime
from typing import Final

from agentjobs_async import Estimate

__all__ = ["clock", "estimate_text", "span"]

_MINUTE, _HOUR = 60, 3600  # seconds
_SOON_SECONDS: Final = 12 * _HOUR  # a time further away needs its day


def clock(moment: float) -> str:
    """Return a moment, in seconds since the epoch, as local time, with the day when it is further away."""
    local = datetime.fromtimestamp(moment, UTC).astimezone()
    return f"{local:%H:%M:%S}" if moment - time.time() < _SOON_SECONDS else f"{local:%a %H:%M}"


def estimate_text(estimate: Estimate) -> str:
    """Return how long a job has left: "about 2 min, 9 of 10 within 5 min"."""
    return f"about {span(estimate.p50)}, 9 of 10 within {span(estimate.p90)}"


def span(seconds: float) -> str:
    """Return a number of seconds in the unit that fits it."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"
