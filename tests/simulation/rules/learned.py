"""What was learned of durations wrongly."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import Final

from attrs import frozen

from tests.simulation.ledger import Learned, Ledger
from tests.simulation.service import Request, Service
from tests.simulation.world import World

_PRECISION: Final = 1.0  # s, of a date without fractions
_SLACK: Final = 0.001  # s, of the clock


@frozen
class _Clocks:
    """By how many seconds the service's clock is ahead of those of the programs: an age counts from a date by these."""

    least: float
    most: float


def broken_by_learning(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """Yield each learned interval that is of no job, of one whose end was learned before, or without its duration."""
    shifts = [fault.amount for fault in world.happened if fault.what == "clock"]  # a process that is down misses one
    shifts_back, shifts_ahead = sum(one for one in shifts if one < 0), sum(one for one in shifts if one > 0)
    clocks = _Clocks(service.ahead - shifts_ahead, service.ahead - shifts_back)
    polls: dict[tuple[str, str], list[Request]] = defaultdict(list)
    for one in service.requests:
        if one.kind == "poll" and one.is_good and not one.is_cut:
            polls[one.sender, one.project].append(one)
    learned_ends: set[int] = set()
    for learned in ledger.learned:
        found = polls[learned.sender, learned.project]
        if learned.latest < inf:
            yield from _wrong_end(world, service, learned, found, clocks, learned_ends)
        elif not any(_was_active(service, learned, one.subject, found, clocks) for one in found):
            yield f"Learned: {learned} is of no job that was seen active until then"


def _wrong_end(
    world: World, service: Service, learned: Learned, found: list[Request], clocks: _Clocks, learned_ends: set[int]
) -> Iterator[str]:
    ends = [one for one in found if one.is_end and id(one) not in learned_ends and _is_read_at(world, one, learned.at)]
    if not ends:
        yield f"Learned: {learned} is of no job that was seen to end then, or of one that was learned before"
        return
    for end in ends:
        longest = learned.latest + clocks.most + _SLACK
        if service.jobs[end.subject].seconds <= longest and _was_active(service, learned, end.subject, found, clocks):
            learned_ends.add(id(end))
            return
    jobs = {one.subject: service.jobs[one.subject].seconds for one in ends}
    yield f"Learned: {learned} does not contain the duration of a job that ended then: {jobs}"


def _is_read_at(world: World, one: Request, moment: float) -> bool:
    return one.heard <= moment and (moment - one.heard < _SLACK or world.stalled(one.heard, moment))


def _was_active(service: Service, learned: Learned, job_id: str, found: list[Request], clocks: _Clocks) -> bool:
    """Return whether a job was active when it is learned to have been: by an answer, which is known when it is read."""
    started = service.jobs[job_id].started
    seen = [one.heard for one in found if one.subject == job_id and not one.is_end and one.heard <= learned.at]
    begun = started + min(clocks.least, 0.0) - _PRECISION - _SLACK  # at the earliest, by the job's date
    return learned.earliest <= max((one - begun for one in seen), default=0.0)
