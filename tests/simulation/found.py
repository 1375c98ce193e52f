"""Cases that broke a promise once, shrunk, each under what was wrong."""

from typing import Final

from tests.simulation.cases import Case
from tests.simulation.ledger import Durable, Program
from tests.simulation.world import Fault

FOUND: Final = {
    "an id that was recorded by a commit whose answer was lost was not followed": Case(
        seed=1,
        programs=(Program("p0", (Durable(1, 0.0, waits=False),), 20.0, 5, None),),
        faults=(Fault("commit", 8, "lost", 1.0),),
    ),
    "a claim that was cancelled while the disk was slow left a row that nothing sent": Case(
        seed=1,
        programs=(Program("p0", (Durable(1, 0.0, waits=True),), 20.0, 5, None),),
        faults=(Fault("commit", 5, "slow", 60.0), Fault("commit", 5, "cancel")),
    ),
}
