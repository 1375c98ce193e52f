"""Times of day, and ends to come, in words."""

import time
from datetime import UTC, datetime
from typing import Final

from agentjobs_async import Estimate

_LEAST_SECONDS: Final = 1.0  # a shorter time to come is rounded to none
_SOON_SECONDS: Final = 12 * 3600.0  # a time further away needs its day


def clock(moment: float) -> str:
    """Return a moment, in seconds since the epoch, as local time, with the day when it is further away."""
    local = datetime.fromtimestamp(moment, UTC).astimezone()
    return f"{local:%H:%M:%S}" if moment - time.time() < _SOON_SECONDS else f"{local:%a %H:%M}"


def is_shown(seconds: float) -> bool:
    """Return whether an end that is so far ahead can be shown as a moment that lies ahead."""
    return seconds >= _LEAST_SECONDS


def ends_in(left: Estimate, jobs: int = 2) -> str:
    """Return in words when one of `jobs` active jobs ends: "an active job ends in about 2 min, 9 of 10 within 5 min".

    With one job only, the words are "ends in ...", to follow its name.
    """
    return f"ends in {left}" if jobs == 1 else f"an active job ends in {left}"
