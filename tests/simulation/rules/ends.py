"""What was broken by what durable jobs were told."""

from collections.abc import Iterator
from itertools import chain

from agentjobs_async.batch import JournalRow
from tests.simulation.ledger import Ledger
from tests.simulation.service import Service
from tests.simulation.tries import is_late, tries_by_key
from tests.simulation.world import World

_UNKNOWN = "CreateOutcomeUnknownError"


def broken_by_ends(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """Each try of a durable job has one end, and it is the true one; after an unknown create, a second one."""
    is_disturbed = (
        any(one.end != "returned" for one in world.processes)
        or ledger.closed
        or any(one.where in {"answer", "commit", "call", "event", "time"} for one in world.happened)
    )
    items = tries_by_key(chain.from_iterable(ledger.rows.values()))
    for key, ends in ledger.on_end_calls.items():
        kinds = list(dict.fromkeys(ends))
        if len(ends) > len(kinds) and not (is_disturbed or ledger.acts_on(key)):
            yield f"Durable: on_end was told {ends} for {key}"
        own = [row for row in items.get(key, []) if not is_late(row)]
        is_settled = not ledger.acts_on(key, "unfollow") and key in items
        if is_settled and not is_disturbed and len([end for end in ends if end != _UNKNOWN]) > len(own):
            yield f"Durable: on_end was told {ends} for {key}, of {len(own)} tries"
        yield from _of_tries(kinds, items.get(key, []), key)
        for kind in kinds:
            if kind.startswith("AgentJob "):
                _, status, job_id = kind.split()
                if service.jobs[job_id].end != status or job_id not in service.agents[key]:
                    yield f"Durable: on_end was told {kind} for {key}"


def _of_tries(kinds: list[str], tries: list[JournalRow], key: str) -> Iterator[str]:
    """Yield the ends that were told and are those of no try: at most one for each, and no job of a late answer."""
    if not tries:
        return  # the journal could not be read at the end
    own = [row for row in tries if not is_late(row)]
    if len([kind for kind in kinds if kind != _UNKNOWN]) > len(own):
        yield f"Durable: on_end was told {kinds} for {key}, of {len(own)} tries"
    ids = {row.job_id for row in own}
    for kind in kinds:
        if kind.startswith("AgentJob ") and kind.split()[2] not in ids:
            yield f"Durable: on_end was told {kind} for {key}, whose tries have the jobs {ids}"
