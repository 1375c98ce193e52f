"""What was broken by waits."""

from collections.abc import Iterator
from math import inf
from typing import Final

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    NotFoundError,
    ProtocolError,
    RejectedError,
    SessionClosedError,
    WaitTimeoutError,
)
from tests.simulation.documents import DOCUMENTS
from tests.simulation.ledger import Ledger, Wait
from tests.simulation.rules.requests import SLACK, TRANSIENT, may_be_unread, polls_by_job
from tests.simulation.service import Request, Service
from tests.simulation.world import World

_ANSWER_GRACE: Final = 60.0  # s
_NOT_FOUND_GRACE: Final = 30.0  # s


def broken_by_waits(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """Yield what waits broke."""
    polls = polls_by_job(service.requests)
    for wait in [one for one in ledger.waits if one.ended < inf]:  # the processes of the others were killed
        yield from _wait(world, service, wait, polls[wait.sender, wait.job_id], ledger)


def _wait(world: World, service: Service, wait: Wait, polls: list[Request], ledger: Ledger) -> Iterator[str]:
    """P4, P7 and P14: a wait ends in time, with the job that was seen to end, and with an error only for a cause."""
    late = wait.ended - wait.begun - wait.timeout
    is_slow = wait.way == "updates" and any(fault.where == "call" for fault in world.happened)  # the reader itself
    if late > 0.25 and not is_slow and not world.stalled(wait.begun, wait.ended):
        yield f"P7: {wait} ended {late:g} s late"
    read = [one for one in polls if one.is_good and not one.is_cut and not may_be_unread(world, one)]
    seen = [one for one in read if wait.begun < one.heard <= wait.ended]
    if isinstance(wait.error, WaitTimeoutError):
        if any(one.is_end and one.heard < wait.begun + wait.timeout - 1e-3 for one in seen):
            yield f"P7: {wait} timed out, with the end in hand"
        if late < -1e-3:
            yield f"P4: {wait} timed out {-late:g} s early"
    elif wait.error is None:
        yield from _wrong_job(wait, service)
    elif isinstance(wait.error, SessionClosedError):
        if wait.sender not in ledger.closed:
            yield f"P17: {wait} ended as closed, though nothing was closed"
    elif isinstance(wait.error, AgentJobsError) and wait.error.outcome is None:  # else it is that of a create
        first = min(one.begun for one in ledger.waits if (one.owner, one.job_id) == (wait.owner, wait.job_id))
        missing = [one for one in polls if one.status != 404 or one.heard > first + _NOT_FOUND_GRACE - SLACK]
        yield from _error(wait, wait.error, seen, [one for one in missing if one.heard >= wait.begun])


def _wrong_job(wait: Wait, service: Service) -> Iterator[str]:
    end = service.jobs[wait.job_id].end
    if wait.job is None or (wait.job.id, wait.job.status) != (wait.job_id, end):
        yield f"P7, P12: {wait} gave no job of its own that ended as {end}"


def _error(wait: Wait, error: AgentJobsError, seen: list[Request], polls: list[Request]) -> Iterator[str]:
    if not any(_is_cause(one, error) for one in polls):
        yield f"P4: {wait} ended with an error, without a cause"
    elif seen and wait.ended - max(one.heard for one in seen) < _ANSWER_GRACE - SLACK:
        yield f"P4: {wait} ended with an error too soon after the job was seen"


def _is_cause(poll: Request, error: AgentJobsError) -> bool:
    """Return whether what a poll was answered may end a wait with this error."""
    match error:
        case AuthError():
            return poll.status in {401, 403}
        case NotFoundError():
            return poll.status in {404, 410}
        case RejectedError():
            return 300 <= poll.status < 500 and poll.status not in TRANSIENT
        case ProtocolError():
            return poll.fault in {*DOCUMENTS, "maintenance"}
    return False
