import random
from bisect import bisect_left
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentjobs_async import History, wait_learned
from agentjobs_async.learning.gaps import default_gap
from tests.learning.draws import history_of, poll_at, two_humps


def ages_of(wait: wait_learned, end: float) -> list[float]:
    """Return the ages at which a job is polled that ends at `end`."""
    ages = [0.0]
    while ages[-1] < end:
        ages.append(ages[-1] + wait(poll_at(ages[-1])))
    return ages


def default_ages(end: float) -> list[float]:
    """Return the same for the default wait without its jitter."""
    ages = [0.0]
    while ages[-1] < end:
        ages.append(ages[-1] + default_gap(ages[-1]))
    return ages


seconds = st.floats(0, 20_000)
intervals = st.tuples(seconds, st.one_of(seconds, st.just(inf))).map(lambda pair: (min(pair), max(pair)))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(intervals, min_size=20, max_size=40),
    st.lists(st.floats(0.01, 9_000), min_size=1, max_size=5),
    st.one_of(st.none(), st.floats(1, 10_000)),
    st.randoms(use_true_random=False),
)
def test_gaps_are_bounded(
    found: list[tuple[float, float]], durations: list[float], polls: float | None, dice: random.Random
) -> None:
    """No history makes an end later than twice the default's gap, or takes more than 2.12 times its polls and one."""
    history = History()
    for low, high in found:
        history.add(low, high)
    random.seed(dice.random())
    wait = wait_learned(history, polls_per_job=polls)
    for duration in durations:
        ages = ages_of(wait, duration)
        assert ages[-1] - duration <= 2 * default_gap(ages[-2])
        assert len(ages) <= 2.12 * len(default_ages(duration)) + 1
        for before, after in pairwise(ages):
            gap = default_gap(before)
            assert gap / 2 - 1e-6 <= after - before <= 2 * gap + 1e-6


def test_polls_where_jobs_end() -> None:
    """The gaps are short at the ages at which jobs end, and long between them."""
    dice = random.Random(1)  # noqa: S311 - no secret
    wait = wait_learned(history_of([two_humps(dice) for _ in range(200)]))
    assert wait(poll_at(20)) < 0.8 * default_gap(20)
    assert wait(poll_at(120)) > 1.7 * default_gap(120)
    assert wait(poll_at(450)) < 0.8 * default_gap(450)


def mean_polls(wait: wait_learned, durations: list[float]) -> float:
    return sum(bisect_left(ages_of(wait, duration), duration) + 1 for duration in durations) / len(durations)


def test_takes_as_many_polls_as_the_default() -> None:
    """Jobs that end as those of the history take about as many polls as by default."""
    dice = random.Random(1)  # noqa: S311 - no secret
    wait = wait_learned(history_of([two_humps(dice) for _ in range(200)]))
    durations = [two_humps(dice) for _ in range(300)]
    by_default = sum(len(default_ages(duration)) for duration in durations) / len(durations)
    assert mean_polls(wait, durations) == pytest.approx(by_default, rel=0.1)


def test_takes_as_many_polls_as_asked_for() -> None:
    """Jobs take the number of polls that was asked for, as far as the bounds allow."""
    dice = random.Random(1)  # noqa: S311 - no secret
    history = history_of([two_humps(dice) for _ in range(200)])
    durations = [two_humps(dice) for _ in range(300)]
    assert mean_polls(wait_learned(history, polls_per_job=25), durations) == pytest.approx(25, rel=0.1)
    assert mean_polls(wait_learned(history, polls_per_job=45), durations) == pytest.approx(45, rel=0.1)
