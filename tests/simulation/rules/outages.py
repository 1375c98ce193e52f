"""What was broken by what was sent in an outage."""

from collections.abc import Iterator
from math import inf

from tests.simulation.activities import Batch, Calls, Program
from tests.simulation.ledger import Ledger
from tests.simulation.rules.requests import creates_by_sender, is_unknown
from tests.simulation.service import Request, Service
from tests.simulation.world import World


def broken_by_outages(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P6: an outage makes nobody faster. P14: a limit of one project holds back no other one."""
    creates = creates_by_sender(service.requests)
    for since, until, kind in world.outages:
        for program in programs:
            if program.interval > 0 and all(isinstance(one, Calls) for one in program.activities):
                yield from _connects(world, ledger, program, since, until)
        for sender, batch in ledger.batches.items():
            if kind in {"503", "504", "maintenance"}:
                sent = [one for one in creates[sender] if since <= one.begun < until]
                yield from _creates(ledger, sender, batch, sent, since, until)
            if kind == "429 blog" and until - since > 250.0 and batch.rate is None:
                yield from _held_back(service, ledger, sender, since, until)


def _creates(
    ledger: Ledger, sender: str, batch: Batch, sent: list[Request], since: float, until: float
) -> Iterator[str]:
    """P6: a batch whose creates are unknown tries one at a time."""
    for project in {one.project for one in sent}:
        mine = [one for one in sent if one.project == project]
        tries = sum(not (one.is_good or one.status == 429) for one in mine)
        # Each run finds it out anew, and so does one that was given an answer amid the outage.
        runs = sum(since < run < until for run in ledger.runs.get(sender, []))
        answers = sum(one.status != 429 and not is_unknown(one) for one in mine)
        if tries > (1 + runs + answers) * (batch.max_sending + 10) + (until - since) / 55.0:
            yield f"P6: {sender} sends {tries} creates of {project} in the outage at {since:g}"


def _held_back(service: Service, ledger: Ledger, sender: str, since: float, until: float) -> Iterator[str]:
    """P14: what a batch has to do for other projects is done."""
    mine = [one for one in service.requests if one.sender == sender]
    creates = [one for one in mine if one.kind == "create" and one.subject not in ledger.settled]
    polls = [one for one in mine if one.kind == "poll"]
    next_run = min((run for run in ledger.runs.get(sender, []) if run > since), default=inf)
    for requests in (creates, polls):
        yield from _others(requests, since, until, next_run)


def _connects(world: World, ledger: Ledger, program: Program, since: float, until: float) -> Iterator[str]:
    def is_mine(owner: str) -> bool:
        return owner.rpartition(".")[0] == program.name

    if any(isinstance(activity, Calls) and activity.way == "read" for activity in program.activities):
        return  # its caller reads each job as often as it likes
    waits = [one for one in ledger.waits if is_mine(one.owner) and one.ended > since and one.begun < until]
    runs = [one for one in waits if one.way == "run"]
    creates = [
        *runs,
        *(one for one in ledger.creates if is_mine(one.owner) and one.begun < until and one.ended > since),
    ]
    tries = sum(since <= moment < until and is_mine(owner) for moment, owner in world.network.connects)
    polled = sum(min(one.ended, until) - max(one.begun, since) for one in waits) / program.interval
    allowed = 1.1 * polled + 2 * len(waits) + sum(12 + min(one.timeout, 120.0) / 5 for one in creates)
    if tries > allowed:
        yield f"P6: {program.name} connects {tries} times in the outage at {since:g}, of {allowed:.0f}"


def _others(requests: list[Request], since: float, until: float, next_run: float) -> Iterator[str]:
    """P14: while one project is refused, what a sender has to do for the others is done."""
    if not requests or requests[0].left > since or requests[-1].left < until:
        return
    blocked = [one.left for one in requests if one.status == 429 and since <= one.left < until]
    if not blocked or blocked[0] > since + 100.0 or blocked[-1] < until - 100.0:
        return
    others = [one for one in requests if one.project != "blog"]
    if any(since + 100.0 < one.left < until for one in others):
        return
    before = {one.subject for one in others if one.left < since}
    for one in others:
        if until <= one.left < next_run and (one.kind == "create" or one.subject in before):
            yield f"P14: {one.sender} sends a {one.kind} of {one.project} only after the limit of another project"
