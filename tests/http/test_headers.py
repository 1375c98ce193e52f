"""How long a server wishes to be left alone."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._http.headers import retry_after
from tests.rows import failures

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SKEWED = NOW - timedelta(days=400)


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def test_wish() -> None:
    """ASCII digits are seconds, with a fraction too, anything else a date, in UTC without an offset; any may be a list.

    The past and negatives are 0.
    """
    later = NOW + timedelta(seconds=90)
    seconds = {
        "0": 0,
        " 7\t": 7,
        "007": 7,
        "-99999999999": 0,
        "1.5": 1.5,
        "0.25": 0.25,
        "-0.5": 0,
        "-0": 0,
        "20, 20": 20,
        "5,soon,\t7.5 , 3": 7.5,
        "9" * 400: 1e9,
        "Fri, 31 Dec 9999 23:59:59 GMT": 1e9,
        http_date(later): 90,
        http_date(NOW - timedelta(seconds=90)): 0,
        f"{http_date(NOW)}, {http_date(later)}": 90,
        f"30, {http_date(later)}, 60": 90,
        later.strftime("%A, %d-%b-%y %H:%M:%S GMT"): 90,
        later.strftime("%a %b %d %H:%M:%S %Y"): 90,
        later.strftime("%a, %d %b %Y %H:%M:%S"): 90,
        later.strftime("%a, %d %b %Y %H:%M:%S -0000"): 90,
        later.astimezone(timezone(timedelta(hours=2))).strftime("%a, %d %b %Y %H:%M:%S +0200"): 90,
    }
    assert {value: retry_after([value], None, NOW.timestamp()) for value in seconds} == seconds


GARBAGE = [
    *("", " ", "soon", "1e3", "+5", "0x10", "5 s", "--5", "\x00", "1_000", "inf", "\u0663", "\u00b2"),
    *("1.", ".5", "1.5.2", "-", ",", ", soon", "7" * 513),
    *("Wed, 99 Oct 2026 07:28:00 GMT", "Wed, 21 Foo 2026 07:28:00 GMT", "Wed, 21 Oct 99999 07:28:00 GMT", "GMT"),
    "Wed, \u0662\u0661 Oct 2026 07:28:00 GMT",
]


def test_garbage() -> None:
    """Garbage is no wish, and spoils no other header's."""
    assert {value for value in GARBAGE if retry_after([value], None, 0.0) is not None} == set()
    assert {value for value in GARBAGE if retry_after([value, "3", value], None, 0.0) != 3} == set()


def test_largest() -> None:
    """Of several headers the largest valid one counts, whatever its form; none is no wish."""
    dated = http_date(NOW + timedelta(seconds=50))
    assert retry_after(["10", dated, "20"], None, NOW.timestamp()) == 50
    assert retry_after(["10", dated, "70"], None, NOW.timestamp()) == 70
    assert retry_after([], None, NOW.timestamp()) is None


def test_milliseconds() -> None:
    """Milliseconds, of a header of their own, are a wish beside the others; garbage in it is none, and no date is."""

    def check(value: str, wish: float | None) -> None:
        assert retry_after([], None, 0.0, [value]) == wish

    rows = [("1500", 1.5), ("0.5", 0.0005), ("-1", 0.0), ("20, 900", 0.9), ("soon", None), (http_date(NOW), None)]
    assert failures(check, *rows) == {}
    assert retry_after(["2"], None, 0.0, ["1500"]) == 2
    assert retry_after(["1"], None, 0.0, ["1500"]) == 1.5


def test_very_many_wishes() -> None:
    """Of very many values the first 64 are read: dates take the loop's time."""
    assert retry_after(["1"] * 63 + ["2", "3"], None, 0.0) == 2
    assert retry_after([",".join("1" * 200)] * 255 + ["9"], None, 0.0) == 1


def test_own_date() -> None:
    """A date counts from the response's own Date, so that a clock askew on either side cancels out."""
    wish = http_date(SKEWED + timedelta(seconds=90))
    assert retry_after([wish], http_date(SKEWED), NOW.timestamp()) == 90
    assert retry_after([wish], None, NOW.timestamp()) == 0
    assert retry_after(["30"], http_date(SKEWED), NOW.timestamp()) == 30
    soon = http_date(NOW + timedelta(seconds=9))
    for broken in ("", "yesterday", "Wed, 99 Oct 2026 07:28:00 GMT"):  # leaves the wall clock
        assert retry_after([soon], broken, NOW.timestamp()) == 9


@given(st.lists(st.text(max_size=40), max_size=3), st.none() | st.text(max_size=40))
def test_any_text(values: list[str], date: str | None) -> None:
    """Any headers give seconds from 0 on or no wish, never an exception."""
    wish = retry_after(values, date, NOW.timestamp(), values)
    assert wish is None or wish >= 0
