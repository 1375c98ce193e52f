"""What was broken by how often, and by whom, the creates of rows were sent."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from agentjobs_async.batch import JournalRow, State
from tests.simulation.activities import Program
from tests.simulation.interventions import PLANS
from tests.simulation.ledger import Ledger
from tests.simulation.rules.requests import is_refused, is_unknown
from tests.simulation.service import Request, Service
from tests.simulation.tries import named_tries, tries_by_key


def was_withdrawn(row: JournalRow) -> bool:
    """Return whether a row was abandoned while it was planned: its create was never sent."""
    return row.state is State.ABANDONED and (row.error or "").startswith(f"abandoned while {State.PLANNED}")


def broken_by_tries(service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Tries: each is sent by one sender and starts at most one agent; none is sent that was withdrawn."""
    sent: dict[str, list[Request]] = defaultdict(list)
    for one in sorted(service.requests, key=lambda request: request.left):
        if one.kind == "create":
            sent[one.subject].append(one)
    for program in programs:
        rows = ledger.rows.get(program.name, [])
        for prompt, tries in tries_by_key(rows).items():
            forgotten = service.idempotency.forgotten.get(prompt, 0)
            yield from _agents(tries, len(service.agents.get(prompt, [])) - forgotten)
            yield from _sent(prompt, sent[prompt], ledger)
            abandoned = [act for act in ledger.acts_on(prompt, "abandon", "withdraw") if act.outcome == "done"]
            if abandoned and not any(row.state is State.ABANDONED for row in tries):
                yield f"Rows: {prompt} was abandoned, and its tries are {[row.state.value for row in tries]}"
        yield from _ids(rows, ledger)


def _agents(tries: list[JournalRow], agents: int) -> Iterator[str]:
    """P1: as many agents as tries at most, without those that were refused or withdrawn."""
    newest = tries[-1]
    started = newest.tries - sum(row.state is State.REJECTED or was_withdrawn(row) for row in tries)
    if agents > started:
        yield f"P1: {agents} agents for {newest.prompt}, whose {newest.tries} tries may have started {started}"
    numbers = [row.tries for row in tries]
    if sorted(set(numbers)) != [*range(1, newest.tries + 1)] or len({name for name, _ in named_tries(tries)}) < len(
        tries
    ):
        yield f"Rows: the tries of {newest.prompt} are {numbers}"


def _sent(prompt: str, sent: list[Request], ledger: Ledger) -> Iterator[str]:
    for one, later in pairwise(sent):
        if later.left < (one.heard if one.heard < inf else one.arrived):
            yield f"Tries: {prompt} is sent by {later.sender} while {one.sender} sends it"
    # The status of a refusal that was cut may have come.
    doubtful = [one for one in sent if one.is_good or (is_unknown(one) and not is_refused(one))]
    planned = sorted(act.begun for act in ledger.acts_on(prompt, *PLANS))
    # What comes again under one key is one try.
    firsts = {one.idempotency_key or str(number): one for number, one in reversed([*enumerate(doubtful)])}
    for number, one in enumerate(sorted(firsts.values(), key=lambda request: request.left)):
        if number > sum(begun < one.left for begun in planned):
            yield f"Tries: {prompt} is sent by {one.sender} at {one.left:g} once more, though nobody planned it again"
    for act in ledger.acts_on(prompt, "abandon", "withdraw"):
        later_plans = [begun for begun in planned if begun >= act.begun]
        late = [one for one in sent if one.left > act.ended and not any(begun < one.left for begun in later_plans)]
        if act.outcome == "done" and late:
            yield f"Tries: {prompt} is sent at {late[0].left:g}, and was abandoned at {act.ended:g}"


def _ids(rows: list[JournalRow], ledger: Ledger) -> Iterator[str]:
    ids = Counter(row.job_id for row in rows if row.job_id and not ledger.acts_on(row.key, "resolve"))
    yield from (f"Rows: {count} rows have the job {job_id}" for job_id, count in ids.items() if count > 1)
