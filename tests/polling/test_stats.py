"""What a tracker counts as it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._polling.stats import Counters, Second


def test_rate() -> None:
    """The rate is that of the last 10 s; before that of all the time, a second at least; and 0 after a silence."""
    counters = Counters()
    for tenth in range(1000, 1006):
        counters.count_error(tenth / 10)
    assert counters.rate(100.6) == 6
    for tenth in range(1006, 1050):
        counters.count_error(tenth / 10)
    assert counters.rate(105) == pytest.approx(50 / 5)
    for tenth in range(1050, 1400):
        counters.count_error(tenth / 10)
    assert counters.rate(140) == pytest.approx(10)
    assert counters.rate(145) == pytest.approx(5, abs=1)
    assert counters.rate(151) == 0
    counters.count_error(200)
    assert counters.rate(200) == pytest.approx(0.1)
    assert counters.polls == 401


def test_memory() -> None:
    """Neither polls that failed nor jobs that ended leave anything behind for each second of a long life."""
    counters = Counters()
    observed = counters.begin(0)
    for second in range(5000):
        counters.count_error(second)
        if second % 100 == 50:
            observed = counters.count_seen(observed, second)
        counters.end(counters.begin(second))
    assert len(counters._seconds) <= 2
    assert len(counters._recent) <= 12


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 4), st.booleans())))
def test_oldest_of_any_history(history: list[tuple[float, int, bool]]) -> None:
    """In any history of jobs that come, are seen and go, the oldest is right to the second."""
    counters, now = Counters(), 1000.0
    jobs: dict[int, tuple[Second, float]] = {}
    for step, job, goes in history:
        now += step
        if job not in jobs:
            jobs[job] = counters.begin(now), now
        elif goes:
            counters.end(jobs.pop(job)[0])
        else:
            jobs[job] = counters.count_seen(jobs[job][0], now), now
        oldest = max((now - seen for _, seen in jobs.values()), default=0.0)
        assert oldest - 1.001 <= counters.oldest(now) <= oldest
