"""The rate limit."""

import math

import pytest

from agentjobs_async.testing import RateLimit
from agentjobs_async.testing._service import RateWindow


def test_window_slides() -> None:
    """A create is allowed again when its span has passed; until then the seconds are rounded up."""
    window = RateWindow(2, per=10)
    assert [window.take("docs", now) for now in (0.0, 1.5, 2.0, 10.0, 10.1)] == [None, None, 8, None, 2]


def test_no_limit() -> None:
    """A limit that is not valid is refused by the name of its setting."""
    with pytest.raises(ValueError, match="'creates' must be"):
        RateLimit(creates=-1)
    with pytest.raises(ValueError, match="'reads' must be"):
        RateLimit(reads=-1)
    with pytest.raises(ValueError, match="'per' must be"):
        RateLimit(per=0)
    with pytest.raises(ValueError, match="'creates' must be a whole number from 0 on, not"):
        RateLimit(creates=1.5)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ValueError, match="'per' must be a finite number of seconds above 0, not inf"):
        RateLimit(per=math.inf)


def test_projects_have_their_own_windows() -> None:
    """The creates of one project do not count for another."""
    window = RateWindow(1, per=3600)
    assert [window.take("docs", 0.0), window.take("web", 0.0), window.take("docs", 0.0)] == [None, None, 3600]
