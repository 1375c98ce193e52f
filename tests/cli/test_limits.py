import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Rate
from agentjobs_async.cli.limits import duration_of, rate_of, rate_text


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/h", Rate(100, per=3600, spread=True)),
        ("2/s/burst", Rate(2, per=1)),
        ("100/h/all", Rate(100, per=3600, scope="all", spread=True)),
        ("100/d/all/burst", Rate(100, per=86_400, scope="all")),
        ("none", None),
    ],
)
def test_rates(text: str, rate: Rate | None) -> None:
    """A rate is a count per second, minute, hour or day, of each project or of all, evenly spaced or not, or none."""
    assert rate_of(text) == rate
    assert rate is None or rate_text(rate) == text


def test_other_ways_to_say_a_rate() -> None:
    """The words of a rate may stand in any order, and a rate that Python has set is shown in its seconds."""
    assert rate_of("3/m/burst/all") == rate_of("3/m/all/burst")
    assert rate_text(Rate(5, per=90)) == "5/90 s/burst"


@pytest.mark.parametrize(
    "text",
    [
        *("", "100", "0/h", "-1/h", "1/week", "x/h", "1.5/s", "100/h/", "100/h/each", "٣/h", "9" * 30 + "/h"),
        *("1/h/all/all", "1/h/burst/", "1/burst"),
    ],
)
def test_no_rates(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidInputError, match="--create-rate"):
        rate_of(text)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("2d", 172_800), ("30m", 1800)])
def test_times(text: str, seconds: float) -> None:
    """A time is a number of seconds, minutes, hours or days."""
    assert duration_of("--for", text) == seconds


@pytest.mark.parametrize("text", ["", "5", "0h", "-1h", "1w", "1h30m", "nan", "1e3s"])
def test_no_times(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidInputError, match="--for"):
        duration_of("--for", text)
