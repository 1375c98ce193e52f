"""What failed, or took long, without a cause."""

from collections.abc import Iterator

from agentjobs_async import CreateOutcome
from tests.simulation.ledger import Ledger
from tests.simulation.rules.requests import SLACK
from tests.simulation.world import World


def broken_without_cause(world: World, ledger: Ledger) -> Iterator[str]:
    """P8 and P18: nothing fails, and nothing takes long, without a cause."""
    ends = {None, CreateOutcome.CREATED}  # without one it was cancelled
    failed = [one for one in ledger.creates if one.outcome not in ends and one.sender not in ledger.closed]
    if not world.happened and (ledger.poll_failures or failed):
        yield "P18: something failed in a world without faults"
    is_reachable = not any(fault.where in {"connection", "lookup", "time", "key"} for fault in world.happened)
    if is_reachable and any(one.outcome is CreateOutcome.NOT_SENT for one in failed):
        yield "P18: something was not sent, though the server could always be reached"
    if is_reachable and ledger.not_sent:
        yield "P18: a poll was not sent, though the server could always be reached"
    kinds = {fault.what for fault in world.happened}
    # A callback that swallows its cancellation is left behind after 10 s; a slow disk may take half a second more.
    allowed = 10.5 if "swallow" in kinds else 0.6 if "slow" in kinds else 0.1
    for cancelled, left in ledger.cancelled:
        if left - cancelled > allowed + SLACK and not world.stalled(cancelled, left):
            yield f"P8: leaving took {left - cancelled:g} s after a cancellation at {cancelled:g}"
