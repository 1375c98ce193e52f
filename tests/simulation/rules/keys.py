"""What was refused for a key that was replaced, though the newer one was at hand."""

from collections.abc import Iterator

from tests.simulation.ledger import Ledger
from tests.simulation.world import World


def broken_by_keys(world: World, ledger: Ledger) -> Iterator[str]:
    """Keys: where each asking gives the newest key, nobody is told of a refusal by 401."""
    has_newest = not any(fault.where == "key" for fault in world.happened)
    is_refused = any(fault.what == "401" for fault in world.happened)
    is_refused |= any(kind.startswith("401 ") for _, _, kind in world.outages)
    if world.new_keys and has_newest and not is_refused:
        for moment, said in ledger.refusals:
            yield f"Keys: a refusal is told at {moment:g}, though there was a newer key: {said}"
