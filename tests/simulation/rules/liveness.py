"""What is left of a session, or of a process, once it was left."""

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import Final

from agentjobs_async import SessionClosedError
from tests.simulation.activities import OWN_LOOPS, Calls, Durable, Program
from tests.simulation.ledger import Create, Ledger, Left, Submission
from tests.simulation.processes import Process
from tests.simulation.rules.requests import RECORDING_SECONDS, SLACK
from tests.simulation.service import Request, Service
from tests.simulation.world import World

_RUN: Final = 10.0  # s, for the creates under way of a run that ends, and as many for what swallows its cancellation


def broken_by_leaving(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P17: a session that was left keeps nobody waiting, begins nothing and sends nothing more."""
    processes = {one.name: one for one in world.processes}
    yield from _never_ended(world, ledger, processes)
    yield from _interrupted(world, programs)
    for sender, left in ledger.left.items():
        owner, _, number = sender.rpartition(".")
        activity = next(one for one in programs if one.name == owner.rpartition(".")[0]).activities[int(number)]
        yield from _time(world, processes[owner], sender, left, records=_records(activity))
        yield from _calls(world, ledger, sender, left)
        yield from _sent([one for one in service.requests if one.sender == sender], sender, left)
        if not isinstance(activity, Calls | Durable):  # durable jobs are left by their program
            yield from _runs(world, ledger, sender, left)
    yield from _begun_while_leaving(ledger)


def _records(activity: object) -> bool:
    """Return whether something is recorded after a create was answered."""
    return not isinstance(activity, Calls) or activity.stores is not None


def _never_ended(world: World, ledger: Ledger, processes: dict[str, Process]) -> Iterator[str]:
    """Each call ends, and so does each call that leaves a session, unless its process is killed."""
    for call in chain(ledger.creates, ledger.waits, ledger.calls):
        if call.ended == inf and processes[call.owner].loop in world.loops:  # else that ended first, whatever it held
            yield f"P17: {call} never ended, though its process was not killed"
    for sender, left in ledger.left.items():
        if left.ended == inf and processes[sender.rpartition(".")[0]].end == "returned":
            yield f"P17: {sender} was never left, though it was asked to at {left.begun:g}"


def _interrupted(world: World, programs: tuple[Program, ...]) -> Iterator[str]:
    """P8: a process that a SIGINT cancels ends once its sessions are drained."""
    graces = {one.name: one.leave.grace for one in programs if one.leave is not None}
    for process in world.processes:
        took = process.ended_at - process.interrupted_at  # not a number where it was not interrupted
        most = graces.get(process.supervisor.name, 0.0) + RECORDING_SECONDS + _RUN + 0.5
        if took > most and not world.stalled(process.interrupted_at, process.ended_at):
            yield f"P8: {process.name} ended {took:g} s after its SIGINT, of {most:g}"


def _time(world: World, process: Process, sender: str, left: Left, *, records: bool) -> Iterator[str]:
    """Leaving ends in time: within its grace, and 10 s more where what was created is recorded."""
    most = left.until + 0.25 + (RECORDING_SECONDS if records else 0.0)
    ended = min(left.ended, process.ended_at)
    if ended > most and not world.stalled(left.begun, ended):
        yield f"P17: leaving {sender} took {ended - left.begun:g} s, of {most - left.begun:g}"


def _calls(world: World, ledger: Ledger, sender: str, left: Left) -> Iterator[str]:
    """All that waits ends at once, and so does what is begun later; creates end when the session was left."""
    for call in chain(ledger.creates, ledger.waits, ledger.calls):
        if call.sender != sender or call.ended == inf or call.ended <= left.begun:
            continue
        if getattr(call, "way", "") in OWN_LOOPS:
            continue
        has_create = isinstance(call, Create | Submission) or getattr(call, "way", "") == "run"
        most = max(left.ended if has_create else left.begun, call.begun) + SLACK
        if isinstance(call, Submission):
            most += _slowest_commit(world)  # it waits for the disk, not for its session
        if getattr(call, "way", "") == "updates" and world.has_busy_readers:
            most += 14.0
        if call.ended > most and not world.stalled(left.begun, call.ended):
            yield f"P17: {call} went on for {call.ended - left.begun:g} s after its session began to be left"
        # A submission may find its job created already: it needs no session.
        is_refused = isinstance(call.error, SessionClosedError) or isinstance(call, Submission)
        if call.begun > left.begun and not is_refused:
            yield f"P17: {call} was begun on a session that was being left, and ended with {call.error!r}"


def _slowest_commit(world: World) -> float:
    """Return how many seconds the disk may take, with the repetitions of what has failed; 0 without a fault."""
    slow = [fault.amount for fault in world.happened if fault.where == "commit"]
    return max(slow) + RECORDING_SECONDS if slow else 0.0


def _sent(sent: list[Request], sender: str, left: Left) -> Iterator[str]:
    """No poll leaves once a session is being left, and nothing at all when it was left."""
    for one in sent:
        if one.left > left.ended + 1e-6:
            yield f"P17: {sender} sends a {one.kind} of {one.subject} at {one.left:g}; it was left at {left.ended:g}"
        if one.kind == "poll" and one.left > left.begun + 1e-6:
            yield f"P17: {sender} polls {one.subject} at {one.left:g}; it leaves since {left.begun:g}"


def _runs(world: World, ledger: Ledger, sender: str, left: Left) -> Iterator[str]:
    """Each run ends with its session, as soon as the disk has what became of its items."""
    most = left.until + 2 * _RUN + 1.0 + _slowest_commit(world)
    ends = [*ledger.run_ends.get(sender, []), inf]
    for begun in ledger.runs.get(sender, []):
        ended = min(one for one in ends if one >= begun)
        if left.begun < ended < inf and begun <= left.begun and ended > most:
            yield f"P17: a run of {sender} ended {ended - left.begun:g} s after its session began to be left"


def _begun_while_leaving(ledger: Ledger) -> Iterator[str]:
    """P8: no create begins once the block of its run is being left, in the same moment either."""
    for sender, leavings in ledger.leavings.items():
        ends = [*ledger.run_ends.get(sender, []), inf]
        for leaving, event in leavings:
            ended = min(end for end in ends if end >= leaving)
            for moment, begun in ledger.begun.get(sender, []):
                if begun > event and moment < ended:
                    yield f"P8: {sender} begins a create at {moment:g}; its run is being left since {leaving:g}"
