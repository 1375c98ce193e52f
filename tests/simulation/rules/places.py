"""What was sent elsewhere than it belongs."""

from collections.abc import Iterator

from tests.simulation.activities import Calls, Program
from tests.simulation.ledger import Ledger
from tests.simulation.service import Service


def broken_by_places(service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Yield each row that is not where it belongs, and each request by a session that has nothing to do with it.

    The service itself looks at the address, the project and the key of each request.
    """
    named = {one.name: one for one in programs}
    for program in [one for one in programs if one.name in ledger.rows]:
        for row in ledger.rows[program.name]:
            if row.project_id != program.project_of(row.prompt):
                yield f"Places: {row.key} is of {row.project_id}, and belongs to {program.project_of(row.prompt)}"
    for one in service.requests:
        prompt = one.subject if one.kind == "create" else service.jobs[one.subject].prompt
        name, starts, position = one.sender.split(".")
        if not _may_send(named[name], int(starts), int(position), prompt):
            yield f"Places: {one.sender} sends a {one.kind} of {one.subject}, which is another's"


def _may_send(program: Program, starts: int, position: int, prompt: str) -> bool:
    """Return whether a session began a job itself, or all sessions on its journal may take the job's row."""
    origin = program.origin(prompt)
    if origin is None:
        return False
    if isinstance(program.activities[position], Calls):
        return (position, starts) == origin[:2]
    return not isinstance(program.activities[origin[0]], Calls)
