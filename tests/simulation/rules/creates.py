"""What was broken by creates."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import Final

from agentjobs_async import CreateOutcome, NotSentError, SessionClosedError
from tests.simulation.ledger import Create, Ledger
from tests.simulation.rules.requests import is_unknown
from tests.simulation.service import Request, Service
from tests.simulation.world import World

_LONGEST_BACKOFF: Final = 10.2  # s, between two tries of a create


def broken_by_creates(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """P6, P7, P8 and P17: a create ends in time, tries as often as it may, and sends nothing afterwards."""
    is_broken = any(fault.where == "connection" for fault in world.happened)
    tries: dict[str, list[Request]] = defaultdict(list)
    for one in service.requests:
        tries[one.subject].append(one)
    for create in ledger.creates:
        prompt, sent = create.prompt, tries[create.prompt]
        yield from _outcome(world, service, create, sent)
        late = create.ended - create.begun - create.timeout
        if 0.25 < late < inf and not world.stalled(create.begun, create.ended):
            yield f"P7: {prompt} ended {late:g} s after its own timeout"
        if isinstance(create.error, NotSentError) and late < -_LONGEST_BACKOFF and create.sender not in ledger.closed:
            yield f"P7: {prompt} gave up {-late:g} s before its own timeout"
        if any(one.left > create.ended + 1e-6 for one in sent):
            yield f"P8: {prompt} was sent after its create had ended"
        if len(sent) > 12 + create.timeout / 5:
            yield f"P6: {prompt} was sent {len(sent)} times in {create.timeout:g} s"
        closed, until = ledger.closed.get(create.sender, (inf, inf))
        is_early = closed < create.ended < until - 0.25 and late < -0.25 and not is_broken
        if (
            create.outcome is CreateOutcome.UNKNOWN
            and is_early
            and sent
            and sent[-1].is_cut
            and sent[-1].fault != "hang up"
        ):
            yield f"P17: {prompt} was cut {create.ended - closed:g} s after the closing, though it had more time"


def _outcome(world: World, service: Service, create: Create, sent: list[Request]) -> Iterator[str]:
    """P2: the caller of a create, or a hook where it was cancelled, is told the truth."""
    prompt, outcome = create.prompt, create.outcome or create.hook_outcome
    agents = service.agents.get(prompt, [])
    is_refused = isinstance(create.error, SessionClosedError) and create.hook_outcome is None  # before it began
    if create.ended < inf and create.hook_outcome is not (outcome if create.job is None else None) and not is_refused:
        yield f"P2: {prompt} is told as {outcome}, and a hook as {create.hook_outcome}"
    is_honoured = not service.idempotency.forgotten.get(prompt, 0)
    if create.job is not None and (agents != [create.job.id] if is_honoured else create.job.id not in agents):
        yield f"P2: {prompt} is told as created, {create.job.id}; its agents are {agents}"
    if outcome in {CreateOutcome.REJECTED, CreateOutcome.NOT_SENT} and agents:
        yield f"P2: {prompt} is told as {outcome}, and has {agents}"
    is_proof = all(one.status == 429 or one.is_not_forwarded or one.is_old_key for one in sent)
    if outcome is CreateOutcome.NOT_SENT and not is_proof:
        yield f"P2: {prompt} is told as not sent, and was"
    is_lost = any(create.begun <= one <= create.ended and who == create.owner for one, who in world.network.lost)
    if outcome is CreateOutcome.UNKNOWN and not (
        is_lost or any(one.heard >= create.ended or is_unknown(one) for one in sent)
    ):
        yield f"P2: {prompt} is told as unknown, without a cause"
