"""How long a server wishes to be left alone: its Retry-After headers, in seconds."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["retry_after"]

_SECONDS: Final = re.compile(r"-?[0-9]+", re.ASCII)


def retry_after(values: Iterable[str], date: str | None, now: float) -> float | None:
    """Give the largest valid wish among `values` in seconds from now on, at least 0; `None` without a valid one.

    RFC 9110, 10.2.3: ASCII digits are seconds, anything else an HTTP-date. A date counts from the response's own
    `Date`, so that skewed clocks cancel out, else from `now`, the wall clock in seconds since the epoch.
    """
    wishes = [wish for value in values if (wish := _wish(value.strip(" \t"), date, now)) is not None]
    return max(wishes, default=None)


def _wish(value: str, date: str | None, now: float) -> float | None:
    if _SECONDS.fullmatch(value):
        return max(float(value), 0.0)
    target = _moment(value)
    if target is None:
        return None
    origin = _moment(date) if date is not None else None
    return max(target - (now if origin is None else origin), 0.0)


def _moment(text: str) -> float | None:
    if not text.isascii():
        return None
    try:
        moment = parsedate_to_datetime(text)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware - datetime.fromtimestamp(0, UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
