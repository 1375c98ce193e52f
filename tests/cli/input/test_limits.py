from agentjobs_async.batch import Rate
from agentjobs_async.cli._input.limits import duration_of, rate_of, rate_text
from tests.cli.checks import taken, unexpected


def test_rates() -> None:
    """A rate is a count per second, minute, hour or day, of each project or of all, evenly spaced or not, or none."""
    rates = {
        "100/h": Rate(100, per=3600, spread=True),
        "2/s/burst": Rate(2, per=1),
        "100/h/all": Rate(100, per=3600, scope="all", spread=True),
        "100/d/all/burst": Rate(100, per=86_400, scope="all"),
    }
    assert unexpected(rates | {"none": None}, rate_of) == {}
    assert {text: shown for text, rate in rates.items() if (shown := rate_text(rate)) != text} == {}


def test_other_ways_to_say_a_rate() -> None:
    """The words of a rate may stand in any order, and a rate that Python has set is shown in its seconds."""
    assert rate_of("3/m/burst/all") == rate_of("3/m/all/burst")
    assert rate_text(Rate(5, per=90)) == "5/90 s/burst"


def test_no_rates() -> None:
    """Anything else is refused."""
    texts = ["", "100", "0/h", "-1/h", "1/week", "x/h", "1.5/s", "100/h/", "100/h/each", "٣/h", "9" * 30 + "/h"]
    texts += ["1/h/all/all", "1/h/burst/", "1/burst"]
    assert taken(dict.fromkeys(texts, "is no rate: write"), rate_of) == {}


def test_times() -> None:
    """A time is a number of seconds, minutes, hours or days; anything else is refused."""
    times = {"90s": 90, "1.5h": 5400, "2d": 172_800, "30m": 1800}
    assert unexpected(times, duration_of) == {}
    texts = ["", "5", "0h", "-1h", "1w", "1h30m", "nan", "1e3s"]
    assert taken(dict.fromkeys(texts, "is no time such as"), duration_of) == {}
