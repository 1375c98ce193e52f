"""What was broken by what durable jobs were told."""

from collections.abc import Iterator

from tests.simulation.interventions import prompt_of
from tests.simulation.ledger import Ledger
from tests.simulation.service import Service
from tests.simulation.world import World


def broken_by_ends(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """Each durable job has one end, and it is the true one; after an unknown create, a second one."""
    is_disturbed = (
        any(one.end != "returned" for one in world.processes)
        or ledger.closed
        or any(one.where in {"answer", "commit", "call", "event", "time"} for one in world.happened)
    )
    for key, ends in ledger.on_end_calls.items():
        kinds = list(dict.fromkeys(ends))
        if len(ends) > len(kinds) and not (is_disturbed or ledger.acts_on(key)):
            yield f"Durable: on_end was told {ends} for {key}"
        if kinds[0] == "CreateOutcomeUnknownError":
            del kinds[0]
        if len(kinds) > 1:
            yield f"Durable: on_end was told {kinds} for {key}"
        for kind in kinds:
            if kind.startswith("AgentJob "):
                _, status, job_id = kind.split()
                if service.jobs[job_id].end != status or job_id not in service.agents[prompt_of(key)]:
                    yield f"Durable: on_end was told {kind} for {key}"
