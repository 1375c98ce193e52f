"""What was polled by two owners on one journal."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.activities import Calls, Program
from tests.simulation.ledger import Ledger
from tests.simulation.rules.requests import SLACK
from tests.simulation.service import Request, Service


def broken_by_owners(service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Owner: one run polls each job of a journal; another one goes on only once that run has told of it, or ended."""
    named = {one.name: one for one in programs}
    polls: dict[str, list[Request]] = defaultdict(list)
    for one in sorted(service.requests, key=lambda request: request.left):
        program, _, position = one.sender.split(".")
        if one.kind == "poll" and not isinstance(named[program].activities[int(position)], Calls):
            polls[one.subject].append(one)
    for job_id, found in polls.items():
        if ledger.acts_on(service.jobs[job_id].prompt):
            continue  # a person has settled or unfollowed it
        for one, later in pairwise(found):
            if one.is_end:
                break  # it is read for a callback after that
            if later.sender != one.sender and _goes_on(one, later, ledger) and not _told(one, service, ledger):
                yield f"Owner: {later.sender} polls {job_id} at {later.left:g}, while {one.sender} has it"


def _goes_on(one: Request, later: Request, ledger: Ledger) -> bool:
    """Return whether the run that polled a job was under way when another one of the same process polled it."""
    is_same_process = one.sender.rpartition(".")[0] == later.sender.rpartition(".")[0]
    ends = ledger.run_ends.get(one.sender, [])
    return is_same_process and not any(one.left - SLACK <= end <= later.left + SLACK for end in ends)


def _told(one: Request, service: Service, ledger: Ledger) -> bool:
    """Return whether the run that polled a job has given a result of its item, which has not ended in its time."""
    key = service.jobs[one.subject].prompt
    return any(key == told for run in ledger.results if run.sender == one.sender for told, _ in run.outcomes)
