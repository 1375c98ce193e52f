"""Text that is shown: a server's, made safe to show, names of jobs, suggestions, times and spans of time in words."""

from collections.abc import Iterable
from datetime import datetime
from math import inf
from typing import Final
from urllib.parse import quote

BETWEEN_IDS: Final = "~."
"""What stands between the project and the id in a job's token; in an ordinary id, it is rare."""

_LONGEST_SUGGESTION: Final = 60  # bytes of a name
_ELLIPSIS: Final = "…"  # 3 bytes of UTF-8, which count
_HALF_A_TENTH: Final = 0.05
_MINUTE_SECONDS: Final = 60
_HOUR_SECONDS: Final = 3_600
_DAY_SECONDS: Final = 86_400
_YEAR_SECONDS: Final = 31_557_600  # 365.25 days
_MOST_HOURS: Final = 240
_MOST_DAYS: Final = 730


def one_line(text: str, max_bytes: int = 2048) -> str:
    """Return `text` as one line of at most `max_bytes` bytes of UTF-8, unprintable characters escaped as by `repr`.

    `str.isprintable` decides: control characters, line breaks, direction overrides and surrogates are unprintable.
    """
    shown = text[: max_bytes + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    encoded = shown.encode()
    if len(encoded) <= max_bytes:
        return shown
    return encoded[: max_bytes - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def error_text(error: BaseException | None, max_bytes: int = 2048) -> str:
    """Return the text of a foreign exception as one line; the name of its type if the text is empty or `str` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a foreign exception's __str__ may fail in any way
        text = ""
    return one_line(text, max_bytes) or type(error).__name__


def shown_name(project_id: str, job_id: str) -> str:
    """Return the token of a job: for errors, events, attributes and logs.

    Unlike a `JobRef`, it exists for every job that was made by hand, with ids that no service has, too.
    """
    encoded = (quote(str(part), safe="", errors="replace") for part in (project_id, job_id))
    return BETWEEN_IDS.join(part.replace("~", "%7E").replace("%", "~") for part in encoded)


def shown_status(status: str) -> str:
    """Return a status as one printable line of at most 200 bytes: for errors, events, attributes, logs and the cli."""
    return one_line(status, 200)


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the question whether the one of `names` is meant that is nearest to `name`; an empty text without one.

    The case of letters does not count.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only where a name is wrong

    by_letters = {other.strip().casefold(): other for other in names if other != name}
    near = get_close_matches(name.strip().casefold(), by_letters, 1)
    return f"; did you mean {one_line(by_letters[near[0]], _LONGEST_SUGGESTION)!r}?" if near else ""


def span(seconds: float) -> str:
    """Return a number of seconds in the unit that fits it, as people say it: `0.4 s`, `5 min`, `1.5 h`, `32 years`."""
    if _HALF_A_TENTH <= seconds < 1 - _HALF_A_TENTH:
        return f"{seconds:.1f} s"
    if round(seconds) < _MINUTE_SECONDS:
        return f"{seconds:.0f} s"
    if round(seconds / _MINUTE_SECONDS) < _MINUTE_SECONDS:
        return f"{seconds / _MINUTE_SECONDS:.0f} min"
    if seconds < _MOST_HOURS * _HOUR_SECONDS:
        return f"{seconds / _HOUR_SECONDS:.1f}".removesuffix(".0") + " h"
    if seconds < _MOST_DAYS * _DAY_SECONDS:
        return f"{seconds / _DAY_SECONDS:.0f} days"
    return f"{seconds / _YEAR_SECONDS:,.0f} years"


def limit(seconds: float) -> str:
    """Return a number of seconds that someone has set: exact below an hour, `90 s`; from there on as by `span`."""
    return span(seconds) if _HOUR_SECONDS <= seconds < inf else f"{seconds:g} s"


def local_time(moment: datetime) -> str:
    """Return a time with its date, to the second, in this machine's time zone: `Mon 03 Mar 14:05:09 UTC`."""
    return f"{moment.astimezone():%a %d %b %H:%M:%S %Z}"
