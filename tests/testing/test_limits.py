"""The rate limit."""

import pytest

from agentjobs_async.testing import RateLimit
from agentjobs_async.testing.limits import RateWindow


def test_window_slides() -> None:
    """A place is free again when its span has passed, and the wish says when, in whole seconds rounded up."""
    window = RateWindow(RateLimit(2, per=10))
    assert [window.take("docs", now) for now in (0.0, 1.5, 2.0, 10.0, 10.1)] == [None, None, 8, None, 2]


def test_no_limit() -> None:
    """A limit that makes no sense is refused by the name of its setting."""
    with pytest.raises(ValueError, match="'creates' must be"):
        RateLimit(creates=-1)
    with pytest.raises(ValueError, match="'per' must be"):
        RateLimit(per=0)


def test_projects_have_their_own_windows() -> None:
    """One project's creates take nothing from another's."""
    window = RateWindow(RateLimit(1))
    assert [window.take("docs", 0.0), window.take("web", 0.0), window.take("docs", 0.0)] == [None, None, 3600]


def test_limit_of_none() -> None:
    """A limit of no creates refuses the first one."""
    assert RateWindow(RateLimit(0, per=5)).take("docs", 1.0) == 5
