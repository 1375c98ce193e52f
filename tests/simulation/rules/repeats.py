"""What was broken by creates that were sent more than once."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import Final

from agentjobs_async import CreateOutcome
from tests.simulation.activities import Program
from tests.simulation.interventions import PLANS
from tests.simulation.ledger import Create, Ledger
from tests.simulation.rules.requests import is_refused, is_unknown
from tests.simulation.service import Request, Service
from tests.simulation.world import World

_SLACK: Final = 0.02  # s
_LONGEST_PAUSE: Final = 62.0  # s, between two tries of a create
_AT_WORK: Final = frozenset({409, 425, 429})  # answers to a repeated create, after which it is sent again


def broken_by_repeats(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Yield what was wrong with creates that were sent more than once.

    Repeats: a create whose outcome is unknown is sent again with its own key alone, to a service that promises to
    honour keys, while it does; only a job settles it.
    """
    of_prompt: dict[str, list[Request]] = defaultdict(list)
    for one in sorted(service.requests, key=lambda request: request.left):
        if one.kind == "create":
            of_prompt[one.subject].append(one)
    of_rows = {
        key
        for program in programs
        for position, activity in enumerate(program.activities)
        for key in activity.keys(program.prefix(position))
    }
    yield from _keys(of_prompt, ledger)
    for prompt, sent in of_prompt.items():
        for key in {one.idempotency_key: None for one in sent}:
            if key is not None or prompt not in of_rows:  # the rows of other services: see `tries`
                yield from _sent(service, prompt, [one for one in sent if one.idempotency_key == key])
    for create in ledger.creates:
        yield from _settled(world, service, ledger, create, of_prompt[create.prompt])


def _keys(of_prompt: dict[str, list[Request]], ledger: Ledger) -> Iterator[str]:
    """Yield each key of several creates, and each create with too many keys."""
    owner: dict[str | None, str] = {}
    for prompt, sent in of_prompt.items():
        keys = {one.idempotency_key for one in sent}
        doubt = next((one for one in sent if is_in_doubt(one)), None)
        # What was refused before that for sure may be sent under a new key.
        later = [] if doubt is None else [one for one in sent if one.left > doubt.left]
        has_others = any(doubt is not None and one.idempotency_key != doubt.idempotency_key for one in later)
        if has_others and not ledger.acts_on(prompt, *PLANS):
            yield f"Repeats: {prompt} was sent under another key, though its outcome was unknown"
        if len({(one.body, one.project) for one in sent}) > 1:
            yield f"Repeats: {prompt} was sent with different bodies"
        for key in keys - {None}:
            if owner.setdefault(key, prompt) != prompt:
                yield f"Repeats: {prompt} and {owner[key]} were sent under one key"


def _sent(service: Service, prompt: str, sent: list[Request]) -> Iterator[str]:
    """Yield each create that was sent again, and should not have been."""
    agreement, doubted = service.agreement, None
    for number, one in enumerate(sent):
        before = sent[:number]
        # Another process may know nothing of an answer that came as the first one ended.
        owner = one.sender.rpartition(".")[0]
        mine = [other for other in before if other.sender.rpartition(".")[0] == owner]
        if any(other.is_good and not other.is_cut for other in mine):
            yield f"Repeats: {prompt} was sent again at {one.left:g}, though it was created"
        if doubted is not None:
            age = one.left - sent[0].left
            if agreement.idempotency_header is None:
                yield f"Repeats: {prompt} was sent again at {one.left:g}, though its outcome was unknown"
            elif age > agreement.idempotency_seconds + _SLACK:
                yield f"Repeats: {prompt} was sent again {age:g} s after its first send"
            if one.key != doubted.key:
                yield f"Repeats: {prompt} was sent again at {one.left:g} under another API key"
        if is_in_doubt(one):
            doubted = one


def is_in_doubt(create: Request) -> bool:
    """Return whether its sender cannot know what came of a create; of a refusal that was cut, the status has come."""
    return is_unknown(create) and not is_refused(create)


def _settled(world: World, service: Service, ledger: Ledger, create: Create, sent: list[Request]) -> Iterator[str]:
    """Yield a create that ended as settled though it is not, or was given up though it could be settled."""
    outcome = create.outcome or create.hook_outcome
    doubted = [one for one in sent if is_in_doubt(one)]
    if doubted and outcome in {CreateOutcome.REJECTED, CreateOutcome.NOT_SENT}:
        yield f"P2: {create.prompt} is told as {outcome}, though a try of it is unknown"
    left = create.begun + create.timeout - create.ended
    is_answered = all(one.status >= 500 or one.status in {0, 200, 204, 408, *_AT_WORK} for one in sent)
    if (
        create.outcome is CreateOutcome.UNKNOWN
        and sent
        and service.agreement.idempotency_header is not None
        and left > _LONGEST_PAUSE
        and create.ended + _LONGEST_PAUSE < sent[0].left + service.agreement.idempotency_seconds
        and is_answered
        and all((one.retry_after or 0.0) <= min(left, _LONGEST_PAUSE - 2.0) for one in sent)
        and create.sender not in ledger.closed
        and not service.keys.newest
        and create.ended < inf
        and not world.stalled(create.begun, create.ended)
    ):
        yield f"Repeats: {create.prompt} was given up as unknown {left:g} s before its own timeout"
