from agentjobs_async.batch import Rate
from agentjobs_async.batch.limits import rate_text
from agentjobs_async.cli._input.limits import duration_of, rate_notice, rate_of
from tests.cli.checks import accepted, unexpected


def test_rates() -> None:
    """A rate is a count in a span of seconds, minutes, hours or days, of each project or of all together, or none."""
    rates = {
        "100/h": Rate(100, per=3600),
        "20/m": Rate(20, per=60),
        "1/36s": Rate(1, per=36),
        "5/2h": Rate(5, per=7200),
        "3/90m": Rate(3, per=5400),
        "1/0.5s": Rate(1, per=0.5),
        "100/h/all": Rate(100, per=3600, scope="all"),
        "2/7d/all": Rate(2, per=7 * 86_400, scope="all"),
    }
    assert unexpected(rates | {"none": None}, rate_of) == {}
    assert {text: shown for text, rate in rates.items() if (shown := rate_text(rate)) != text} == {}


def test_other_ways_to_say_a_rate() -> None:
    """A span may be said in any unit; it is shown in the largest one of which it is a whole number."""
    shown = {"5/60s": "5/m", "1/1.5h": "1/90m", "24/24h": "24/d", "007/90s": "7/90s"}
    assert unexpected(shown, lambda text: rate_text(rate_of(text) or Rate(1, per=1))) == {}


def test_what_a_rate_means() -> None:
    """A rate is shown as what it allows, with the rate that spaces as many creates evenly, and never allows more."""
    shown = {
        Rate(100, per=3600): "--create-rate 100/h: at most 100 creates of each project in any span of 1 h; 1/36s",
        Rate(20, per=60): "--create-rate 20/m: at most 20 creates of each project in any span of 60 s; 1/3s",
        Rate(7, per=3600): "--create-rate 7/h: at most 7 creates of each project in any span of 1 h; 1/515s",
        Rate(2, per=86_400, scope="all"): (
            "--create-rate 2/d/all: at most 2 creates of all projects together in any span of 24 h; 1/12h/all"
        ),
    }
    assert unexpected({rate: f"{words} spaces them evenly." for rate, words in shown.items()}, rate_notice) == {}
    assert rate_notice(Rate(3000, per=1)).endswith(" at most 3,000 creates of each project in any span of 1 s.")
    alone = "--create-rate 1/36s: at most 1 create of each project in any span of 36 s."
    assert rate_notice(Rate(1, per=36)) == alone


def test_no_rates() -> None:
    """Anything else is refused."""
    texts = ["", "100", "0/h", "-1/h", "1/week", "x/h", "1.5/s", "100/h/", "100/h/each", "٣/h", "9" * 30 + "/h"]
    texts += ["1/h/all/all", "1/all", "1/36", "1/-3s", "1/0s", "1/0.0h", "1/1e3s", "1/ 36s"]
    assert accepted(dict.fromkeys(texts, "is no rate: write"), rate_of) == {}


def test_times() -> None:
    """A time is a number of seconds, minutes, hours or days; anything else is refused."""
    times = {"90s": 90, "1.5h": 5400, "2d": 172_800, "30m": 1800}
    assert unexpected(times, duration_of) == {}
    texts = ["", "5", "0h", "-1h", "1w", "1h30m", "nan", "1e3s"]
    assert accepted(dict.fromkeys(texts, "is no time such as"), duration_of) == {}
