"""What a tracker counts as it goes."""

import pytest

from agentjobs_async._polling.stats import Counters


def test_rate() -> None:
    """The rate is that of the last 10 s; before that of all the time, a second at least; and 0 after a silence."""
    counters = Counters(100.0)
    for tenth in range(1000, 1006):
        counters.count(tenth / 10, failed=True)
    assert counters.rate(100.6) == 6
    for tenth in range(1006, 1050):
        counters.count(tenth / 10, failed=True)
    assert counters.rate(105) == pytest.approx(50 / 5)
    for tenth in range(1050, 1400):
        counters.count(tenth / 10, failed=True)
    assert counters.rate(140) == pytest.approx(10)
    assert counters.rate(145) == pytest.approx(5, abs=1)
    assert counters.rate(151) == 0
    counters.count(200, failed=True)
    assert counters.rate(200) == pytest.approx(0.1)
    assert counters.polls == 401


def test_memory() -> None:
    """Polls leave nothing behind for each second of a long life."""
    counters = Counters(0.0)
    for second in range(5000):
        counters.count(second, failed=second % 2 == 0)
    assert (counters.polls, counters.errors) == (5000, 2500)
    assert len(counters._recent) <= 11
