"""What was broken by whether durable jobs were told of their ends, and by when."""

from collections.abc import Iterator

from tests.simulation.activities import Durable, Program
from tests.simulation.ledger import Ledger
from tests.simulation.tries import tries_by_key
from tests.simulation.world import World


def broken_by_telling(world: World, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Told: each end of each try was told, in their order; once a row is unfollowed, nothing is told of it."""
    for program in programs:
        durable = [
            key
            for number, one in enumerate(program.activities)
            if isinstance(one, Durable)
            for key in one.keys(program.prefix(number))
        ]
        for key, tries in tries_by_key(ledger.rows.get(program.name, [])).items():
            for row in ledger.untold(tries) if key in durable else []:
                told = [str(one.state) for one in ledger.told if one.key == key]
                yield f"Told: try {row.tries} of {key} is {row.state}, and on_end was told {told}"
    for act in ledger.acts:
        if act.verb == "unfollow" and act.outcome == "done":
            again = min(
                (one.begun for one in ledger.acts_on(act.key, "retry", "send again") if one.ended > act.begun),
                default=world.now,
            )
            for key, moment in [*((one.key, one.begun) for one in ledger.told), *ledger.changes]:
                if key == act.key and act.ended + 1e-6 < moment < again:
                    yield f"Told: a callback is called for {key} at {moment:g}, which was unfollowed at {act.ended:g}"
