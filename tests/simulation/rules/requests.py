"""What several rules ask of a request, and of when it was sent."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tests.simulation.service import Request
from tests.simulation.world import World

SLACK: Final = 0.02  # s, for what a network takes
RECORDING_SECONDS: Final = 10.0  # for which a draining waits beyond its grace until what was created is recorded
TRANSIENT: Final = {408, 425, 429, 500, 502, 503, 504}


def creates_by_sender(requests: list[Request]) -> dict[str, list[Request]]:
    """Return the creates of each session, in the order in which they were sent."""
    found: dict[str, list[Request]] = defaultdict(list)
    for one in sorted(requests, key=lambda request: request.left):
        if one.kind == "create":
            found[one.sender].append(one)
    return found


def polls_by_job(requests: list[Request]) -> dict[tuple[str, str], list[Request]]:
    """Return the polls of each session and job, in the order in which they were sent."""
    found: dict[tuple[str, str], list[Request]] = defaultdict(list)
    for one in sorted(requests, key=lambda request: request.left):
        if one.kind == "poll":
            found[one.sender, one.subject].append(one)
    return found


def is_unknown(create: Request) -> bool:
    """Return whether its sender cannot know if a create has started an agent."""
    return create.is_cut or not (create.is_good or is_refused(create))


def is_refused(create: Request) -> bool:
    """Return whether an answer proves that no agent was started."""
    return create.is_not_forwarded or (300 <= create.status < 500 and create.status not in {303, 408})


def is_skewed(world: World) -> bool:
    """Return whether a clock was set: what counts by the time of day proves nothing then."""
    return any(fault.what == "clock" for fault in world.happened)


def may_be_unread(world: World, one: Request) -> bool:
    """Return whether its sender stood still meanwhile, and may have found the answer and its own time-out at once."""
    return world.stalled(one.left, one.heard)


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Return how many spans, each from its begin to its end, overlap at most."""
    most = now = 0
    spans = [(begin, end) for begin, end in spans if end > begin]
    for _, change in sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]):
        now += change
        most = max(most, now)
    return most
