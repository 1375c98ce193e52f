"""Delays that grow from one try to the next."""

from itertools import islice

from agentjobs_async._loop.delays import doubling


def test_doubling() -> None:
    """Each delay is twice the one before, and none is longer than the longest."""
    assert list(islice(doubling(1.0, 5.0), 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]
