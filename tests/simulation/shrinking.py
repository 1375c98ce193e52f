"""The least of a world that still breaks the same promise."""

from collections.abc import Iterator

from attrs import evolve

from tests.simulation.activities import Batch, Calls, Durable
from tests.simulation.cases import Case, run


def shrunk(case: Case) -> Case:
    """Return the least that still breaks the same promise: faults are left out first, then all else by turns."""
    promise = _promise(case)
    for size in (8, 4, 2, 1):
        for at in reversed(range(0, len(case.faults), size)):
            fewer = evolve(case, faults=case.faults[:at] + case.faults[at + size :])
            if _promise(fewer) == promise:
                case = fewer
    while smaller := next((one for one in _smaller(case) if _promise(one) == promise), None):
        case = smaller
    return case


def _promise(case: Case) -> str | None:
    """Return which promise a case breaks first, by its first word."""
    found = run(case).violations
    return found[0].split()[0] if found else None


def _smaller(case: Case) -> Iterator[Case]:
    """Yield the case without one of its programs, or with less of one activity."""
    for at, program in enumerate(case.programs):
        before, after = case.programs[:at], case.programs[at + 1 :]
        if before or after:
            yield evolve(case, programs=before + after)
        for number, activity in enumerate(program.activities):
            for less in _less(activity):
                activities = [*program.activities]
                activities[number] = less
                yield evolve(case, programs=(*before, evolve(program, activities=tuple(activities)), *after))


def _less(activity: Calls | Batch | Durable) -> Iterator[Calls | Batch | Durable]:
    """Yield an activity with fewer jobs, or with fewer interventions."""
    for count in [one for one in (1, 2, 4, 10) if one < activity.count]:
        yield evolve(activity, count=count)
    if isinstance(activity, Calls):
        return
    found = activity.interventions
    for size in sorted({len(found), len(found) // 2, 1} - {0}, reverse=True):
        for at in range(0, len(found), size):
            yield evolve(activity, interventions=found[:at] + found[at + size :])
