"""Whether all promises were kept: what programs were told, against what the service knows.

The promises that are checked, by their numbers:
P1: One create starts at most one agent.
P2: Each create ends as created, rejected, not sent or unknown, and that is true.
P3: Batches survive a kill: no id is lost, nothing is created twice, what is unsure is listed, limits hold.
P4: A wait rides out transient faults until its deadline.
P5: Nothing is sent before a Retry-After is over, as far as the client accepts it.
P6: A failure makes nobody faster.
P7: Waits and creates end in time; an end in hand is returned even then.
P8: A cancellation ends at once what it cancels, and nothing more is sent.
P9, P15: Requests go to the configured address alone.
P10: The key is in no error and no file.
P12: Nothing is coerced or invented, and only errors of the package escape.
P13: One poll of a job at a time, no burst however often it is notified, and none after its end.
P14: No job disturbs another one, no project another project.
P16: What the service says is cleaned before it is shown.
P17: Closing ends in time, and leaves nothing.
P18: Waiting for a slot is no fault of the service.
P19: No context of one caller reaches another one.
P21: Under a limit no job stays unseen for longer than two fair turns.
Durable: `on_end` is told each end, the true one.
Told: each end is told once it is recorded, by one at a time.
Responsible: each row that is not ended has somebody who moves it on.
Rows: what has ended stays so.
Tries: one sender, at most one agent for each, none for what was withdrawn.
Repeats: a create is sent again only with its own key, and only a job settles it.
Keys: a refused key is replaced by the newest one, and nobody is told.
Body, Headers: each request has the fields and headers that were agreed on, and no others.
Owner: one run at a time polls each job of a journal.
Places: each request goes to the project of its row or job, from a session that may send it.
Events: hooks are told of each wait and poll in order, with the label of the job's first labelled wait.
Learned: each learned interval contains the duration of a job, and each end is learned once.
Counters: stats return to 0. World: what ends in none of these ways.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.simulation.activities import Program
from tests.simulation.agreement import SECRETS
from tests.simulation.ledger import Ledger
from tests.simulation.rules.causes import broken_without_cause
from tests.simulation.rules.creates import broken_by_creates
from tests.simulation.rules.durable_ids import broken_by_lost_ids
from tests.simulation.rules.ends import broken_by_ends
from tests.simulation.rules.events import broken_by_events
from tests.simulation.rules.keys import broken_by_keys
from tests.simulation.rules.learned import broken_by_learning
from tests.simulation.rules.limits import broken_by_runs
from tests.simulation.rules.liveness import broken_by_leaving
from tests.simulation.rules.outages import broken_by_outages
from tests.simulation.rules.owners import broken_by_owners
from tests.simulation.rules.places import broken_by_places
from tests.simulation.rules.polls import broken_by_polls
from tests.simulation.rules.repeats import broken_by_repeats
from tests.simulation.rules.responsible import broken_by_responsibility
from tests.simulation.rules.results import broken_by_results
from tests.simulation.rules.rows import broken_by_rows
from tests.simulation.rules.told import broken_by_telling
from tests.simulation.rules.tries import broken_by_tries
from tests.simulation.rules.waits import broken_by_waits
from tests.simulation.service import Service
from tests.simulation.world import World


def broken_promises(
    world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...], folder: Path
) -> Iterator[str]:
    """Yield what was broken, one sentence each."""
    yield from world.violations
    yield from broken_by_creates(world, service, ledger)
    yield from broken_by_repeats(world, service, ledger, programs)
    yield from broken_by_keys(world, ledger)
    yield from broken_by_rows(world, service, ledger, programs)
    yield from broken_by_ends(world, service, ledger)
    yield from broken_by_responsibility(ledger)
    yield from broken_by_tries(service, ledger, programs)
    yield from broken_by_telling(world, ledger, programs)
    yield from broken_by_results(world, service, ledger, programs)
    yield from broken_by_polls(world, service, ledger, programs)
    yield from broken_by_waits(world, service, ledger)
    yield from broken_by_runs(world, service, ledger)
    yield from broken_by_outages(world, service, ledger, programs)
    yield from broken_by_places(service, ledger, programs)
    yield from broken_by_owners(service, ledger, programs)
    yield from broken_by_events(service, ledger)
    yield from broken_by_learning(world, service, ledger)
    yield from broken_by_leaving(world, service, ledger, programs)
    yield from broken_by_lost_ids(world, service, ledger, programs)
    yield from broken_without_cause(world, ledger)
    yield from _shown_secrets(ledger, folder)


def _shown_secrets(ledger: Ledger, folder: Path) -> Iterator[str]:
    for secret in SECRETS:
        yield from (
            f"P10: {file.name} has {secret}" for file in folder.iterdir() if secret.encode() in file.read_bytes()
        )
        yield from (f"P10: a log has {secret}: {text}" for _, _, text in ledger.logs if secret in text)
