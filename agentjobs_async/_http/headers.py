"""The meaning of header fields: Retry-After and retry-after-ms, in seconds, and Content-Encoding."""

import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import islice
from typing import Final

from agentjobs_async.errors import ProtocolError

_SECONDS: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_DELAYS: Final = re.compile(r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,)?[^,]+", re.ASCII | re.IGNORECASE)
"""The elements of a list: a date has a comma of its own, after the day of the week."""
_MOST_SECONDS: Final = 1e9  # about 30 years: a longer delay counts as this one, so that it stays a finite number
_MOST_CHARACTERS: Final = 512  # of one field: to read dates takes the loop's time
_MOST_ELEMENTS: Final = 64  # of all fields, for the same reason
_MILLISECOND: Final = 0.001


def retry_after(values: Iterable[str], date: str | None, now: float, milliseconds: Iterable[str] = ()) -> float | None:
    """Return the longest valid delay that a response asks for, in seconds, from 0 to 1e9; `None` without a valid one.

    By RFC 9110, 10.2.3, a value is seconds in ASCII digits, or an HTTP-date. Read as well, since servers and proxies
    send them: a fraction of seconds, and a list, as which several fields are joined.

    Args:
        values: Those of the fields Retry-After.
        date: The response's own Date, from which an HTTP-date counts, so that skewed clocks cancel out.
        now: Seconds since the epoch: an HTTP-date counts from it where `date` is missing or invalid.
        milliseconds: The values of the fields retry-after-ms, which some services send beside Retry-After.
    """
    delays = [_delay(value, date, now) for value in _elements(values)]
    delays += [_seconds(value, _MILLISECOND) for value in _elements(milliseconds)]
    valid = [delay for delay in delays if delay is not None]
    return min(max(valid), _MOST_SECONDS) if valid else None


def _elements(values: Iterable[str]) -> Iterator[str]:
    short = (value for value in values if len(value) <= _MOST_CHARACTERS)
    found = (element.strip(" \t") for value in short for element in _DELAYS.findall(value))
    return islice(found, _MOST_ELEMENTS)


def _seconds(value: str, unit: float = 1.0) -> float | None:
    return max(float(value) * unit, 0.0) or 0.0 if _SECONDS.fullmatch(value) else None  # never -0.0


def _delay(value: str, date: str | None, now: float) -> float | None:
    if (seconds := _seconds(value)) is not None:
        return seconds
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


_PLAIN: Final = frozenset({"", "none", "identity"})
"""Names that servers and proxies give to no coding at all."""


def coding_of(values: Iterable[str]) -> str:
    """Return the codings that some Content-Encoding fields name, joined by commas; empty where the body is plain.

    The name of a charset, which Content-Type should have, is none of them.
    """
    names = (name.strip(" \t").lower() for value in values for name in value.split(","))
    return ",".join(name for name in names if name not in _PLAIN and not _is_charset(name))


@lru_cache(64)
def _is_charset(name: str) -> bool:
    try:
        "".encode(name)
    except (LookupError, ValueError):  # of no codec, of one that is not of text, or no name at all
        return False
    return True


_MOST_MEMBERS: Final = 64  # of a gzip: each is searched for in all that follows it
_WITH_MEMBERS: Final = {"gzip", "x-gzip"}
# zlib's codes for a gzip header, a zlib header, and none: some servers send "deflate" without its zlib header.
_WINDOW_BITS: Final = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}


def inflated(body: bytes, coding: str, limit: int) -> bytes:
    """Return `body` decoded from gzip or deflate; at most `limit` bytes, and one more to detect excess, are produced.

    A gzip may have up to 64 members (RFC 1952, 2.2), which proxies that compress as they forward make, and zeros may
    follow the data, as padding.

    Raises:
        ProtocolError: With the reason `too_large`: it decodes to more than `limit` bytes. `encoding`: another coding,
            or broken, cut short, or followed by other data.
    """
    for window_bits in _WINDOW_BITS.get(coding, ()):
        plain = _inflated(body, window_bits, limit, _MOST_MEMBERS if coding in _WITH_MEMBERS else 1)
        if plain is not None:
            return plain
    raise ProtocolError("encoding", "its Content-Encoding is not gzip or deflate, or the data is broken")


def _inflated(body: bytes, window_bits: int, limit: int, members: int) -> bytes | None:
    """Return what up to `members` members decode to; `None` if broken, cut short, or followed by other data."""
    plain, rest = b"", body
    for _ in range(members):
        inflater = zlib.decompressobj(window_bits)
        try:
            plain += inflater.decompress(rest, limit + 1 - len(plain))
        except zlib.error:
            return None
        if len(plain) > limit:
            raise ProtocolError("too_large", f"more than {limit} bytes when decompressed")
        if not inflater.eof:
            return None
        rest = inflater.unused_data.lstrip(b"\0")
        if not rest:
            return plain
    return None
