"""What is wrong with the rows of a journal."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import Final

from agentjobs_async.batch import JournalRow, State
from tests.simulation.activities import Program
from tests.simulation.documents import Job
from tests.simulation.ledger import Ledger
from tests.simulation.rules.requests import is_unknown
from tests.simulation.rules.tries import was_withdrawn
from tests.simulation.service import Service
from tests.simulation.tries import is_late
from tests.simulation.world import World

_JOB_ENDS: Final = (State.COMPLETED, State.FAILED, State.ARCHIVED)


def broken_by_rows(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P3: no id is lost, and each row tells the truth, whatever was killed."""
    unsure = {one.subject for one in service.requests if one.kind == "create" and is_unknown(one)}
    is_cut = any(fault.where == "commit" or fault.what in {"kill", "cancel"} for fault in world.happened)
    is_cut |= any(one.interrupted_at < inf for one in world.processes)
    for program in [one for one in programs if one.name in ledger.rows]:
        rows = ledger.rows[program.name]
        ended = {one.job_id for one in service.requests if one.is_end and not one.is_cut}
        known: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            known[row.prompt].append(row.job_id or ("unknown" if _is_unsure(row) else ""))
            if row.state is State.UNKNOWN and not (is_cut or world.network.lost or row.prompt in unsure):
                yield f"P3: {row.key} is unknown, without a cause"
            yield from _row(row, service.jobs.get(row.job_id), ended)
        for prompt, ids in known.items():
            lost = set(service.agents.get(prompt, [])) - set(ids)
            if len(lost) > ids.count("unknown") + service.idempotency.forgotten.get(prompt, 0):
                yield f"P3: the job of {prompt} is lost: {lost}; its rows have {ids}"
        wanted = {key for number, one in enumerate(program.activities) for key in one.keys(program.prefix(number))}
        if missing := wanted - {row.key for row in rows}:
            yield f"P3: there are no rows of {sorted(missing)}"


def _is_unsure(row: JournalRow) -> bool:
    return row.state is State.UNKNOWN or (row.state is State.ABANDONED and not was_withdrawn(row))


def _row(row: JournalRow, job: Job | None, ended: set[str]) -> Iterator[str]:
    if row.state is State.UNKNOWN and row.job_id:
        yield f"P3: {row.key} is unknown, and has the id {row.job_id}"
    if row.job_id and (job is None or job.prompt != row.prompt):
        yield f"P3: {row.key} has the job of another prompt: {row.job_id}"
    elif (
        job is not None
        and row.state in _JOB_ENDS
        and (row.error is None or is_late(row))
        and (row.state != job.end or job.id not in ended)
    ):
        yield f"P3, P12: {row.key} is {row.state}; its job, seen to end: {job.id in ended}, is {job.end}"
