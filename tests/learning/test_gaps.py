import random
from bisect import bisect_left
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentjobs_async import History
from agentjobs_async.learning.gaps import GapTable, default_gap
from tests.learning.draws import history_of, two_humps


def ages_of(table: GapTable, end: float) -> list[float]:
    """Return the ages at which a job is polled that ends at `end`."""
    ages = [0.0]
    while ages[-1] < end:
        ages.append(ages[-1] + table.delay(ages[-1]))
    return ages


def default_ages(end: float) -> list[float]:
    """Return the same for the default wait without its jitter."""
    ages = [0.0]
    while ages[-1] < end:
        ages.append(ages[-1] + default_gap(ages[-1]))
    return ages


seconds = st.floats(0, 20_000)
intervals = st.tuples(seconds, st.one_of(seconds, st.just(inf))).map(lambda pair: (min(pair), max(pair)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(intervals, min_size=1, max_size=40),
    st.lists(st.floats(0.01, 9_000), min_size=1, max_size=5),
    st.one_of(st.none(), st.floats(1, 10_000)),
    st.randoms(use_true_random=False),
)
def test_first_guard(
    found: list[tuple[float, float]], durations: list[float], polls: float | None, dice: random.Random
) -> None:
    """No history makes an end later than twice the default's gap, or takes more than 2.12 times its polls and one."""
    history = History()
    for low, high in found:
        history.add(low, high)
    random.seed(dice.random())
    table = GapTable(history.survival(), polls)
    for duration in durations:
        ages = ages_of(table, duration)
        assert ages[-1] - duration <= 2 * default_gap(ages[-2])
        assert len(ages) <= 2.12 * len(default_ages(duration)) + 1
        for before, after in pairwise(ages):
            gap = default_gap(before)
            assert gap / 2 - 1e-6 <= after - before <= 2 * gap + 1e-6


def test_polls_where_jobs_end() -> None:
    """The gaps are short at the ages at which jobs end, and long between them."""
    dice = random.Random(1)  # noqa: S311 - no secret
    table = GapTable(history_of([two_humps(dice) for _ in range(200)]).survival())
    assert table.delay(20) < 0.8 * default_gap(20)
    assert table.delay(120) > 1.7 * default_gap(120)
    assert table.delay(450) < 0.8 * default_gap(450)


def mean_polls(table: GapTable, durations: list[float]) -> float:
    return sum(bisect_left(ages_of(table, duration), duration) + 1 for duration in durations) / len(durations)


def test_takes_as_many_polls_as_the_default() -> None:
    """Jobs that end as those of the history take about as many polls as by default."""
    dice = random.Random(1)  # noqa: S311 - no secret
    table = GapTable(history_of([two_humps(dice) for _ in range(200)]).survival())
    durations = [two_humps(dice) for _ in range(300)]
    by_default = sum(len(default_ages(duration)) for duration in durations) / len(durations)
    assert mean_polls(table, durations) == pytest.approx(by_default, rel=0.1)


def test_takes_as_many_polls_as_asked_for() -> None:
    """Jobs take the number of polls that was asked for, as far as the bounds allow."""
    dice = random.Random(1)  # noqa: S311 - no secret
    history = history_of([two_humps(dice) for _ in range(200)])
    durations = [two_humps(dice) for _ in range(300)]
    assert mean_polls(GapTable(history.survival(), 25), durations) == pytest.approx(25, rel=0.1)
    assert mean_polls(GapTable(history.survival(), 45), durations) == pytest.approx(45, rel=0.1)
