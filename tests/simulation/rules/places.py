"""What was sent elsewhere than it belongs."""

from collections.abc import Iterator

from tests.simulation.ledger import Calls, Ledger, Program
from tests.simulation.service import Request, Service


def broken_by_places(service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """Yield each row and request that is not where it belongs; the service itself looks at the keys and the address."""
    named = {one.name: one for one in programs}
    for program in [one for one in programs if one.name in ledger.rows]:
        for row in ledger.rows[program.name]:
            if row.project_id != program.project_of(row.prompt):
                yield f"Places: {row.key} is of {row.project_id}, and belongs to {program.project_of(row.prompt)}"
    for one in service.requests:
        name, _, position = one.sender.split(".")
        program = named[name]
        prompt = one.subject if one.kind == "create" else service.jobs[one.subject].prompt
        if one.project != program.project_of(prompt):
            yield f"Places: a {one.kind} of {one.subject} by {one.sender} goes to {one.project}"
        if not _may_send(one, prompt, program, int(position)):
            yield f"Places: {one.sender} sends a {one.kind} of {one.subject}, which is another's"


def _may_send(one: Request, prompt: str, program: Program, position: int) -> bool:
    """Return whether a request is of what its session began, or of a row that all sessions on its journal may take."""
    if isinstance(program.activities[position], Calls):
        return prompt.startswith(f"{program.name}-{position}.{one.sender.split('.')[1]}-")
    of = int(prompt.removeprefix(f"{program.name}-").replace("/", ":").replace(".", ":").partition(":")[0])
    return not isinstance(program.activities[of], Calls)
