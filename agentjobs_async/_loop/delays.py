"""Delays that grow from one try to the next."""

from collections.abc import Iterator


def doubling(first: float, longest: float) -> Iterator[float]:
    """Yield delays in seconds, without end: `first`, doubled each time up to `longest`."""
    delay = first
    while True:
        yield delay
        delay = min(2 * delay, longest)
