"""Which rows are left with nobody who moves them on."""

from collections.abc import Iterator
from itertools import chain

from agentjobs_async.batch import State
from tests.simulation.ledger import Ledger


def broken_by_responsibility(ledger: Ledger) -> Iterator[str]:
    """Responsible: at the end of a world, in which everything ran to its end, each row has ended or is unknown.

    Nobody follows an active durable job that was unfollowed.
    """
    for row in chain.from_iterable(ledger.rows.values()):
        if row.state.is_open and not (row.state is State.ACTIVE and ledger.is_unfollowed(row)):
            yield f"Responsible: {row.key} is left {row.state}"
