from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async.learning.survival import AGES, Survival

seconds = st.floats(0, 50_000)
intervals = st.tuples(seconds, st.one_of(seconds, st.just(inf))).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(intervals, min_size=1, max_size=60))
def test_share_falls(found: list[tuple[float, float]]) -> None:
    """The share of active jobs falls from 1 and never reaches 0, whatever the durations."""
    survival = Survival([(low if low < inf else 0.0, high) for low, high in found], prior=0.1, narrowest=0.3)
    assert survival.alive[0] == pytest.approx(1)
    assert all(after <= before + 1e-9 for before, after in zip(survival.alive, survival.alive[1:], strict=False))
    assert survival.alive[-1] > 0


def test_integral() -> None:
    """The integral of the share is that of its straight lines, also beyond the last age."""
    survival = Survival([(9, 11), (90, 110)], prior=0.1, narrowest=0.3)
    middle = (AGES[100] + AGES[101]) / 2
    step = middle - AGES[100]
    assert survival.area(middle) - survival.area(AGES[100]) == pytest.approx(
        step * (survival.at(AGES[100]) + survival.at(middle)) / 2
    )
    assert survival.area(20_000) - survival.area(19_000) == pytest.approx(1_000 * survival.at(19_500))


def test_inverse() -> None:
    """The age at which a share is left is the inverse of the share at an age."""
    survival = Survival([(9, 11), (90, 110), (900, 1_100)], prior=0.02, narrowest=0.1)
    for share in (0.9, 0.5, 0.2, 0.1):
        assert survival.at(survival.age_at(share)) == pytest.approx(share)
    assert survival.age_at(0.0) == inf


def test_longer_than_all_ages() -> None:
    """Of jobs that were active for 4 h or longer nothing is learned but that, to the very second."""
    for seconds in (14_399.9, 14_400.0, 20_000.0):
        found = Survival([(seconds, inf)] * 20, prior=0.1, narrowest=0.1)
        assert found.known[-2] == pytest.approx(1.0)
