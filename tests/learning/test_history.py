import pickle
import random
from math import inf, nan
from typing import Any

import pytest

from agentjobs_async import History, InvalidInputError
from tests.learning.draws import history_of, two_humps
from tests.rows import failures


def test_keeps_the_last_200() -> None:
    """A history keeps the last 200 durations."""
    history = history_of([10.0] * 150 + [100.0] * 200)
    assert len(history) == 200
    assert history.quantile(0.01) > 50


def test_quantiles_follow_the_durations() -> None:
    """Half of the jobs end within the median of their durations, nine of ten within the ninth decile."""
    durations = random.Random(1).sample(range(101, 301), 200)  # noqa: S311 - no secret
    history = history_of([float(seconds) for seconds in durations])
    assert history.quantile(0.5) == pytest.approx(200, rel=0.05)
    assert history.quantile(0.9) == pytest.approx(280, rel=0.05)


def test_recent_durations_weigh_more() -> None:
    """The last 50 durations weigh as much as all that came before."""
    history = history_of([10.0] * 150 + [100.0] * 50)
    assert history.quantile(0.44) == pytest.approx(10, rel=0.1)
    assert history.quantile(0.56) == pytest.approx(100, rel=0.1)


def test_quantiles_count_from_the_age() -> None:
    """A job of two humps that has outlived the first one has most of the second one left."""
    dice = random.Random(1)  # noqa: S311 - no secret
    history = history_of([two_humps(dice) for _ in range(200)])
    assert history.quantile(0.5, age=100) == pytest.approx(380, rel=0.1)


def test_a_timed_out_wait_speaks_for_longer_durations() -> None:
    """A duration of which only a lower bound is known moves the quantiles up, not down."""
    known, censored = history_of([100.0] * 50), history_of([100.0] * 50)
    for _ in range(50):
        censored.add(90, inf)
    assert censored.quantile(0.4) == pytest.approx(known.quantile(0.4), rel=0.1)
    for _ in range(50):
        censored.add(300, inf)
    assert censored.quantile(0.9) > 300


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    """A history that was pickled, by any protocol, has the same durations and quantiles; an empty one is empty."""
    history = history_of([10.0, 20.0, 30.0])
    history.add(50, inf)
    copy = pickle.loads(pickle.dumps(history, protocol))  # noqa: S301 - our own object
    assert copy == history
    assert copy.quantile(0.5, 5) == history.quantile(0.5, 5)
    empty = pickle.loads(pickle.dumps(History(), protocol))  # noqa: S301 - our own object
    assert (len(empty), empty.added) == (0, 0)


def test_prints_its_quantiles() -> None:
    """The repr says how many durations there are, and their quantiles."""
    assert repr(History()) == "<History of 0 durations>"
    assert repr(history_of([100.0] * 3)).startswith("<History of 3 durations: 10% within ")


def test_refuses_what_is_no_interval() -> None:
    """An interval goes from a finite number of seconds to a greater one, or to infinity."""

    def check(earliest: Any, latest: Any) -> None:
        with pytest.raises(InvalidInputError):
            History().add(earliest, latest)

    assert failures(check, (-1, 2), (3, 2), (inf, inf), (nan, 2), (1, nan), ("1", 2)) == {}


def test_refuses_what_is_no_share() -> None:
    """A quantile takes a share above 0 and below 1, and a finite age."""

    def check(p: Any, age: Any, words: str) -> None:
        with pytest.raises(InvalidInputError, match=words):
            history_of([10.0]).quantile(p, age)

    shares = [(p, 0, "^p must be a share of jobs") for p in (0, 1, 1.5, "a", True)]
    assert failures(check, *shares, (0.5, -1, "^age must be"), (0.5, inf, "^age must be")) == {}


def test_an_empty_history_has_no_quantiles() -> None:
    """The quantile of an empty history is an error that says what to do."""
    with pytest.raises(InvalidInputError, match="add durations first"):
        History().quantile(0.5)
