"""What was broken by polls."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Final

from agentjobs_async import WaitTimeoutError
from tests.simulation.activities import Batch, Calls, Program
from tests.simulation.ledger import Ledger
from tests.simulation.rules.requests import SLACK, TRANSIENT, may_be_unread, most_at_once, polls_by_job
from tests.simulation.service import Request, Service
from tests.simulation.world import World

_MAX_RETRY_AFTER: Final = 60.0  # s, `max_retry_after`
_LONGEST_BACKOFF: Final = 60.0  # s, of a project whose polls are refused without a Retry-After
_LONGEST_RELEASE: Final = 10.0  # s, over which the polls that a server held back are spread
_LEAST_GAP: Final = 0.25  # s, between two polls of a job, however often it is notified
_LONGEST_DELAY: Final = 9.9  # s, of the default policy
_LONGEST_POLL: Final = 0.3  # s, of those that are answered well


def broken_by_polls(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Yield what polls broke, one sentence each."""
    polls = polls_by_job(service.requests)
    yield from _one_at_a_time(world, polls, ledger)
    yield from _paces(world, polls, ledger, programs)
    yield from _notified(world, polls, ledger)
    yield from _retry_afters(world, service.requests, ledger)
    yield from _unseen(world, service, ledger, programs)
    yield from _budgets(world, polls, ledger, programs)


def _one_at_a_time(world: World, polls: dict[tuple[str, str], list[Request]], ledger: Ledger) -> Iterator[str]:
    """P13: one poll of a job at a time, and none after its end. P8: none goes on after the last wait."""
    for (sender, job_id), found in polls.items():
        for first, second in pairwise(found):
            if second.left < first.heard - 1e-6:
                yield f"P13: {sender} polls {job_id} twice at once, at {first.left:g} and {second.left:g}"
        ended = next((one.heard for one in found if one.is_end and not one.is_cut), inf)
        waits = [wait for wait in ledger.waits if wait.job_id == job_id]
        left = max((wait.ended for wait in waits), default=inf)
        is_stalled = world.stalled(found[0].left, found[-1].heard)  # an answer may have come, and not be read in time
        if any(poll.left > left + SLACK or poll.left < left < poll.heard - 0.1 for poll in found) and not is_stalled:
            yield f"P8: {sender} goes on polling {job_id} after {left:g}, when its last wait ended"
        begun = [*(wait.begun for wait in waits), *ledger.runs.get(sender, [])]
        late = [
            poll.left
            for poll in found
            if poll.left > ended + 1e-6 and not any(ended <= one <= poll.left for one in begun)
        ]
        if late and not is_stalled:
            yield f"P13: {sender} polls {job_id} at {late[0]:g}, which has ended at {ended:g}"


def _paces(
    world: World, polls: dict[tuple[str, str], list[Request]], ledger: Ledger, programs: tuple[Program, ...]
) -> Iterator[str]:
    """P6: after a fault no job is polled sooner than after an answer, except at a deadline and for a new wait."""
    exact = {}
    for program in programs:
        for position, activity in enumerate(program.activities):
            if program.interval > 0 and isinstance(activity, Calls) and not activity.notifies:
                # A last poll waits for those of other jobs, and may come when its wait has ended.
                exact[program.name, str(position)] = program.interval, activity.timeout, _turn(program, activity.count)
    for (sender, job_id), found in polls.items():
        name, _, number = sender.split(".")
        interval, timeout, queued = exact.get((name, number), (0.0, 0.0, 0.0))
        begun = [wait.begun for wait in ledger.waits if wait.job_id == job_id and wait.way != "run"]
        for first, second in pairwise(found if begun else []):
            is_last = any(-1 - SLACK < second.left - start - timeout < queued + SLACK for start in begun)
            is_first = any(first.left < start < second.left + SLACK for start in begun)
            is_early = second.left - first.left < interval - SLACK and not world.stalled(first.left, second.left)
            # A `get_job` of one's own reads by the session's, which repeats a read whose reused connection broke.
            is_repeated = sender in ledger.own_get_job and not first.status
            if is_early and not (is_first or is_last or is_repeated or second.is_again):
                yield f"P6: {sender} polls {job_id} again after {second.left - first.left:g} s, not {interval:g}"


def _notified(world: World, polls: dict[tuple[str, str], list[Request]], ledger: Ledger) -> Iterator[str]:
    """P13: notifications cause no burst: no three polls of a job in a quarter of a second.

    The deadlines of a batch's items are not known here: each causes one poll more, as a new wait does.
    """
    for (sender, job_id), found in polls.items():
        if sender in ledger.own_get_job:
            continue
        times = [*ledger.runs.get(sender, []), *ledger.run_ends.get(sender, [])]
        for wait in ledger.waits:
            if (wait.sender, wait.job_id) == (sender, job_id):
                times += [wait.begun, wait.begun + wait.timeout, wait.ended]
        own = [poll for poll in found if not poll.is_again]
        for first, third in zip(own, own[2:], strict=False):
            is_early = third.left - first.left < _LEAST_GAP - SLACK
            is_early &= not any(first.left - SLACK < one < third.left + 1 for one in times)
            if is_early and not world.stalled(first.left, third.left):
                yield f"P13: {sender} polls {job_id} three times in {third.left - first.left:g} s, until {third.left:g}"


def _retry_afters(world: World, requests: list[Request], ledger: Ledger) -> Iterator[str]:
    """P5: nothing is sent before a Retry-After is over."""
    until: dict[tuple[str, str, str], tuple[float, float]] = {}
    heard = [(one.heard, 0, number) for number, one in enumerate(requests) if _is_binding(world, one, ledger)]
    sent = [(one.left, 1, number) for number, one in enumerate(requests)]
    for moment, is_sent, number in sorted([*heard, *sent]):
        one = requests[number]
        of_job = (one.sender, one.kind, one.subject)
        of_project = (one.sender, one.kind, f"project {one.project}")
        if not is_sent:
            alone = ledger.own_get_job if one.kind == "poll" else ledger.independent_creates
            for scope in [of_job] if one.status != 429 or one.sender in alone else [of_job, of_project]:
                until[scope] = max(until.get(scope, (0.0, 0.0)), (moment + _held_for(one), moment))
            continue
        for held in (of_job, of_project):
            end, since = until.get(held, (0.0, 0.0))
            # What is connecting when another request of its project is refused is under way.
            slack = 1e-6 if held == of_job else SLACK + _lookup(world, moment)
            begun = (one.begun if one.kind == "create" else moment) - slack
            if one.kind == "create" and any(since <= run <= moment for run in ledger.runs.get(one.sender, [])):
                continue  # a run knows nothing of what an earlier one was asked
            if one.is_again and held == of_project:
                continue  # it was under way before, with another key
            if since < begun and moment < end - 0.1:  # the head of an answer may come before the rest
                yield f"P5: {held} at {moment:g}, {end - moment:g} s too early"


def _lookup(world: World, moment: float) -> float:
    """Return for how many seconds a name was looked up, for a request that left at `moment`."""
    slow = [
        (at, fault.amount) for fault, at in world.happened.items() if (fault.where, fault.what) == ("lookup", "slow")
    ]
    return max((seconds for at, seconds in slow if 0.0 <= moment - at - seconds < SLACK), default=0.0)


def _is_binding(world: World, one: Request, ledger: Ledger) -> bool:
    """Return whether the Retry-After of an answer counts for what its sender sends next."""
    if one.retry_after is None or one.is_cut:
        return False
    if may_be_unread(world, one):
        return False
    if one.kind == "create":
        return one.status == 429
    if any(fault.what == "cancel" and abs(at - one.heard) < SLACK for fault, at in world.happened.items()):
        return False  # the task of a poll that is cancelled as the answer comes does not read it
    if one.is_good:
        return not (one.is_end or one.sender in ledger.own_get_job)  # whose `get_job` returns the job alone
    return one.status in TRANSIENT  # others may end the wait, and a new one is its caller's


def _held_for(one: Request) -> float:
    """Return for how many seconds an answer's Retry-After counts."""
    return min(one.retry_after or 0.0, _MAX_RETRY_AFTER)


def _may_be_held_for(one: Request) -> float:
    """Return for how many seconds at most an answer holds polls back: a 429 that asks for nothing, for up to 60 s."""
    return _held_for(one) or (_LONGEST_BACKOFF if one.status == 429 else 0.0)


def _unseen(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P5, P14 and P21: no job stays unseen for longer than its delay and two fair turns, unless it is held back."""
    disturbed = [*_disturbed(world)]
    held_back: dict[str, list[Request]] = defaultdict(list)
    # From, until, and whether more come.
    moments: dict[tuple[str, str], list[tuple[float, float, bool]]] = defaultdict(list)
    for (sender, job_id), found in polls_by_job(service.requests).items():
        held_back[sender] += [one for one in found if _may_be_held_for(one)]
        # An answer of another kind may end a wait; its caller begins the next one when it likes.
        moments[sender, job_id] += [(one.left, one.heard, _goes_on(one)) for one in found]
    for wait in ledger.waits:
        if isinstance(wait.error, WaitTimeoutError) and wait.way != "run":
            moments[wait.sender, wait.job_id] += [(wait.begun, wait.begun, True), (wait.ended, wait.ended, False)]
    for (sender, job_id), times in moments.items():
        allowed = _longest_gap(sender, programs)
        runs = {*ledger.runs.get(sender, [])}  # each may end the waits of the one before
        for (_, first, goes_on), (second, _, _) in pairwise(sorted([*times, *((run, run, False) for run in runs)])):
            is_late = goes_on and second - first > allowed and second not in runs
            if is_late and not any(begin < second and first < end for begin, end in disturbed):
                longest = _MAX_RETRY_AFTER + _LONGEST_RELEASE
                near = [one for one in held_back[sender] if first - longest < one.heard < second]
                # Two projects that are refused hold all others, and so do two jobs that are not served.
                all_held = len({one.project for one in near}) > 1
                all_held |= len({one.subject for one in near if one.status == 503}) > 1
                held = [
                    (one.heard, one.heard + _may_be_held_for(one))
                    for one in near
                    if all_held or one.project == service.jobs[job_id].project
                ]
                # A pause of all polls moves them alike, the rest of a job's own Retry-After among it.
                most = allowed + (_MAX_RETRY_AFTER if all_held else _LONGEST_RELEASE if held else 0.0)
                if (free := second - first - _covered(held, first, second)) > most:
                    yield f"P21: {sender} leaves {job_id} unseen for {free:g} s at {first:g}, of {most:g}"


def _goes_on(poll: Request) -> bool:
    """Return whether another poll follows an answer: not after the end, unless its sender has left before it came."""
    return poll.status in TRANSIENT or (poll.is_good and (poll.is_cut or not poll.is_end))


def _longest_gap(sender: str, programs: tuple[Program, ...]) -> float:
    """Return how many seconds may lie between two polls of a job; infinite where nothing is promised."""
    name, _, number = sender.split(".")
    program = next(one for one in programs if one.name == name)
    activity = program.activities[int(number)]
    if program.interval < 0 or (program.interval == 0 and isinstance(activity, Batch)):
        return inf  # its delays are learned
    if isinstance(activity, Calls):
        waits = 3 * activity.count if activity.way == "shared" else activity.count
    else:  # what follows one journal may take over the jobs of another one
        waits = sum(one.count for one in program.activities if not isinstance(one, Calls))
    if isinstance(activity, Calls) and activity.way in {"free", "read"}:
        return inf  # each wait polls for itself
    turn = _turn(program, waits)
    return (program.interval or _LONGEST_DELAY) + 2 * turn + (1.0 if isinstance(activity, Calls) else 5.0)


def _turn(program: Program, jobs: int) -> float:
    """Return within how many seconds each of so many jobs that are due is polled once."""
    return max(jobs / (program.per_second or inf), _LONGEST_POLL * jobs / program.in_flight)


def _disturbed(world: World) -> Iterator[tuple[float, float]]:
    """Yield the times in which polls may be late for another cause."""
    for fault, moment in world.happened.items():
        if (fault.where, fault.what) == ("connection", "slow"):
            yield moment - 1.0, inf  # it may carry all polls that follow
        elif fault.where == "lookup" or fault.what in {"silent", "hang", "slow", "late", "stall"}:
            yield moment - 100.0, moment + (1300.0 if fault.where == "job" else 300.0)  # all polls of that job
        elif fault.where == "connection":  # the poll may have been lost before it came
            yield moment - 1.0, moment + 1.0
        elif fault.what == "cancel" or fault.where == "call":  # the next run of a batch begins after 30 s
            yield moment, moment + 40.0
    for since, until, kind in world.outages:
        if kind != "429 blog":
            yield since - 100.0, until + 300.0


def _covered(spans: list[tuple[float, float]], first: float, last: float) -> float:
    """Return how much of the time from `first` to `last` the spans cover."""
    total = 0.0
    for begin, end in sorted(spans):
        total += max(0.0, min(end, last) - max(begin, first))
        first = max(first, min(end, last))
    return total


def _budgets(
    world: World, polls: dict[tuple[str, str], list[Request]], ledger: Ledger, programs: tuple[Program, ...]
) -> Iterator[str]:
    """P18: no session has more polls under way, or begins more a second, than its budget allows."""
    found: dict[str, list[Request]] = defaultdict(list)
    for (sender, _), some in polls.items():
        if sender not in ledger.own_get_job:  # whose reads are no polls of the session
            found[sender] += some
    is_late = any(fault.where == "lookup" or fault.what in {"stall", "slow"} for fault in world.happened)
    for sender, some in found.items():
        program = next(one for one in programs if one.name == sender.partition(".")[0])
        if (most := most_at_once([(one.left, one.heard) for one in some])) > program.in_flight:
            yield f"P18: {sender} has {most} polls under way, of {program.in_flight}"
        if program.per_second is not None and not is_late:
            begun = sorted(one.left for one in some if not one.is_again)
            count = int(10.0 * program.per_second) + 3
            for first, last in zip(begun, begun[count - 1 :], strict=False):
                if last - first < 10.0 - SLACK:
                    yield f"P18: {sender} begins {count} polls in {last - first:g} s"
