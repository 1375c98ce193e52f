import pytest

from agentjobs_async.batch import BatchItem, Rate
from agentjobs_async.cli.estimates import Estimate, estimate

ITEMS = [BatchItem(str(number), "x", "docs" if number < 200 else "web") for number in range(250)]


@pytest.mark.parametrize(
    ("rate", "max_active", "job_seconds", "expected"),
    [
        (None, 20, 180, Estimate(13 * 180, "20 jobs at once decide")),
        (None, 20, 0, Estimate(0, "20 jobs at once decide")),
        (Rate(100, per=3600), 1000, 180, Estimate(3600 + 180, "the rate of 100/h/burst decides")),
        (Rate(100, per=3600, scope="all"), 1000, 180, Estimate(7200 + 180, "the rate of 100/h/all/burst decides")),
        (Rate(100, per=3600, spread=True), 1000, 180, Estimate(199 * 36 + 180, "the rate of 100/h decides")),
        (Rate(100, per=3600), 2, 180, Estimate(125 * 180, "2 jobs at once decide")),
        (Rate(100, per=3600), 20, 0, Estimate(3600, "the rate of 100/h/burst decides")),
    ],
)
def test_estimate(rate: Rate | None, max_active: int, job_seconds: float, expected: Estimate) -> None:
    """A run lasts as long as its slots or the rate of its largest project make it, whichever is longer."""
    assert estimate(ITEMS, max_active=max_active, create_rate=rate, job_seconds=job_seconds) == expected


def test_nothing_to_send() -> None:
    """A run of nothing takes no time."""
    assert estimate([], max_active=1, create_rate=Rate(1, per=60), job_seconds=60).seconds == 0
