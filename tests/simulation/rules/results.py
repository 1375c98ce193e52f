"""What was broken by the results of batches."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import Final

from agentjobs_async.batch import JournalRow, Outcome
from tests.simulation.activities import Calls, Durable, Program
from tests.simulation.interventions import PLANS
from tests.simulation.ledger import Ledger, Results
from tests.simulation.rules.requests import is_skewed
from tests.simulation.service import Service
from tests.simulation.world import EPOCH, World

_NO_ENDS: Final = (Outcome.TIMED_OUT, Outcome.ACTIVE)


def broken_by_results(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Told: each end of a batch's item is a result of one run: one of those in which it ended, if that gave all.

    Where the service honours idempotency keys, to be unknown is none: each run sends the create again, and tells anew.
    """
    no_ends = _NO_ENDS if service.agreement.idempotency_header is None else (*_NO_ENDS, Outcome.UNKNOWN)
    for program in programs:
        journalled = {program.prefix(number) for number, one in enumerate(program.activities) if _has_rows(one)}
        if len(journalled) != 1 or any(isinstance(one, Durable) for one in program.activities):
            continue  # what shares a journal may take over each other's rows
        rows = {row.key: row for row in ledger.rows.get(program.name, [])}
        runs = [one for one in ledger.results if one.sender.partition(".")[0] == program.name]
        yield from _twice(runs, ledger, no_ends)
        if not is_skewed(world):
            yield from chain.from_iterable(_missing(run, runs, rows, ledger) for run in runs if run.until < inf)


def _has_rows(activity: object) -> bool:
    return not isinstance(activity, Calls)


def _twice(runs: list[Results], ledger: Ledger, no_ends: tuple[Outcome, ...]) -> Iterator[str]:
    for (key, outcome), count in Counter(one for run in runs for one in run.outcomes).items():
        if outcome not in no_ends and count > 1 + len(ledger.acts_on(key, *PLANS)):
            yield f"Told: {count} runs give the result that {key} is {outcome}"


def _missing(run: Results, runs: list[Results], rows: dict[str, JournalRow], ledger: Ledger) -> Iterator[str]:
    """Yield the rows that ended in a run, and are no result of it, nor of one at the same time."""
    beside = [one for one in runs if one.begun < run.until and run.begun < one.until]
    if any(one.until == inf for one in beside):
        return  # that was left before it gave all
    given = {key for one in beside for key, _ in one.outcomes}
    for row in rows.values():
        at = (row.ended_at.timestamp() if row.ended_at is not None else -inf) - EPOCH
        if run.begun < at < run.until and row.key not in given and not ledger.acts_on(row.key, "abandon"):
            yield f"Told: {row.key} is {row.state} since {at:g}, and is no result of the run from {run.begun:g} on"
