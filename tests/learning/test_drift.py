import random

from agentjobs_async.learning.drift import DriftTest


def test_notices_a_change() -> None:
    """Durations four times as long are noticed within 40 of them."""
    random.seed(1)
    drift = DriftTest(random.lognormvariate(5, 0.6) for _ in range(50))
    assert any(drift.add(4 * random.lognormvariate(5, 0.6)) for _ in range(40))


def test_false_alarms_are_rare() -> None:
    """Of 300 series of 300 durations of one distribution, at most 1 % give an alarm, a little more by chance."""
    random.seed(2)
    alarms = 0
    for _ in range(300):
        drift = DriftTest()
        alarms += any(drift.add(random.random()) for _ in range(300))  # noqa: S311 - no secret
    assert alarms <= 6


def test_ties_are_no_evidence() -> None:
    """Durations that are all the same are evidence of nothing."""
    random.seed(3)
    drift = DriftTest()
    assert not any(drift.add(5.0) for _ in range(500))


def test_memory_is_bounded() -> None:
    """However many durations come, it keeps at most 2,000 of them."""
    random.seed(4)
    drift = DriftTest()
    for _ in range(4_500):
        drift.add(random.random())  # noqa: S311 - no secret
    assert len(drift._sorted) <= 2_001
