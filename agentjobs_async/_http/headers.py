"""The meaning of two header fields: Retry-After, in seconds, and Content-Encoding."""

import re
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from agentjobs_async.errors import ProtocolError

_SECONDS: Final = re.compile(r"-?[0-9]+", re.ASCII)
_MOST_SECONDS: Final = 1e9  # about 30 years: a longer delay counts as this one, so that it stays a finite number


def retry_after(values: Iterable[str], date: str | None, now: float) -> float | None:
    """Return the longest valid delay among `values`, in seconds, from 0 to 1e9; `None` without a valid one.

    By RFC 9110, 10.2.3, a value is seconds in ASCII digits, or an HTTP-date. From a date, `date` is subtracted, the
    response's own Date header, so that skewed clocks cancel out; without one, `now`, in seconds since the epoch.
    """
    delays = [retry_after for value in values if (retry_after := _seconds(value.strip(" \t"), date, now)) is not None]
    return min(max(delays), _MOST_SECONDS) if delays else None


def _seconds(value: str, date: str | None, now: float) -> float | None:
    if _SECONDS.fullmatch(value):
        return max(float(value), 0.0)
    target = _timestamp(value)
    if target is None:
        return None
    origin = _timestamp(date) if date is not None else None
    return max(target - (now if origin is None else origin), 0.0)


def _timestamp(text: str) -> float | None:
    if not text.isascii():
        return None
    try:
        moment = parsedate_to_datetime(text)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware - datetime.fromtimestamp(0, UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


# zlib's codes for a gzip header, a zlib header, and none: some servers send "deflate" without its zlib header.
_WINDOW_BITS: Final = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}


def inflated(body: bytes, coding: str, limit: int) -> bytes:
    """Return `body` decoded from gzip or deflate; at most `limit` bytes, and one more to detect excess, are produced.

    Raises:
        ProtocolError: With the reason `too_large`: it decodes to more than `limit` bytes. `encoding`: another coding,
            or broken, cut short, or followed by other data.
    """
    for window_bits in _WINDOW_BITS.get(coding, ()):
        inflater = zlib.decompressobj(window_bits)
        try:
            plain = inflater.decompress(body, limit + 1)
        except zlib.error:
            continue
        if len(plain) > limit:
            raise ProtocolError("too_large", f"more than {limit} bytes when decompressed")
        if inflater.eof and not inflater.unused_data:
            return plain
    raise ProtocolError("encoding", "its Content-Encoding is not gzip or deflate, or the data is broken")
