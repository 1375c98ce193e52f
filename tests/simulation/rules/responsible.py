"""Which rows are left with nobody who moves them on."""

from collections.abc import Iterator

from tests.simulation.ledger import Ledger


def broken_by_responsibility(ledger: Ledger) -> Iterator[str]:
    """Responsible: at the end of a world, in which everything ran to its end, each row has ended or is unknown."""
    for rows in ledger.rows.values():
        yield from (f"Responsible: {row.key} is left {row.state}" for row in rows if row.state.is_open)
