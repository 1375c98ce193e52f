"""How long a server is left alone that refuses requests for now, and does not say for how long."""

from agentjobs_async._loop.backoff import Backoff


def test_pauses_double() -> None:
    """Refusals in a row pause for 1 s, doubling to 60 s; a good answer makes the next pause the first of a row."""
    backoff, pauses, now = Backoff(), list[float](), 100.0
    for answered in [False] * 8 + [True, False]:
        if answered:
            backoff.answered()
        until = backoff.refused(now, now)
        pauses.append(until - now)
        now = until
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]


def test_refused_together() -> None:
    """Requests that were under way when a pause began are refused by the same fault: they do not lengthen it."""
    backoff = Backoff()
    assert [backoff.refused(5.0, now) for now in (6.0, 6.5, 30.0)] == [7.0, 7.0, 7.0]
    assert backoff.refused(7.0, 31.0) == 33.0
