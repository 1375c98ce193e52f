"""Ids that were answered, and that nobody has."""

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from math import inf

from tests.simulation.activities import Calls, Program
from tests.simulation.ledger import Create, Ledger, Wait
from tests.simulation.rules.requests import RECORDING_SECONDS, may_be_unread
from tests.simulation.service import Request, Service
from tests.simulation.world import World


def broken_by_lost_ids(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P2, P3, P17: an id that was answered is in the journal when its process has ended, or its caller was told."""
    yield from _unstored(ledger)
    calls = _calls(ledger)
    warned, critical = _ids_logged(ledger, logging.WARNING), _ids_logged(ledger, logging.CRITICAL)
    recorded = {one.owner: one.ids for one in ledger.snapshots}
    activities = {f"{one.name}.{number}": each for one in programs for number, each in enumerate(one.activities)}
    for one in [one for one in service.requests if _was_answered(world, one)]:
        owner, _, number = one.sender.rpartition(".")
        if isinstance(activities[f"{owner.rpartition('.')[0]}.{number}"], Calls):
            of_its_own = [*calls[one.subject], *calls[one.job_id]]
            yield from _untold(one, of_its_own, ledger, is_logged=one.job_id in warned[owner])
            continue
        is_recorded, is_reported = one.job_id in recorded.get(owner, ()), one.job_id in critical[owner]
        may_be_reported = _is_disk_bad(world, ledger, one.sender)
        if not is_recorded and not (is_reported and may_be_reported):
            yield f"P3: {one.job_id} of {one.subject} was answered at {one.heard:g}, and is not in the journal"
        if is_recorded and is_reported and not may_be_reported:
            yield f"P3: {one.job_id} of {one.subject} is reported as not recorded; it is in the journal"


def _calls(ledger: Ledger) -> dict[str, list[Create | Wait]]:
    """Return the calls that create jobs, by their prompts, and those of `run_job` by their jobs."""
    calls: dict[str, list[Create | Wait]] = defaultdict(list)
    for create in ledger.creates:
        calls[create.prompt].append(create)
    for wait in [one for one in ledger.waits if one.way == "run"]:
        calls[wait.job_id].append(wait)
    return calls


def _ids_logged(ledger: Ledger, least: int) -> dict[str, set[str]]:
    """Return the words of what processes have logged, of this level or worse; the id in a token is a word."""
    words: dict[str, set[str]] = defaultdict(set)
    for owner, level, text in ledger.logs:
        if level >= least:
            words[owner].update(re.findall(r"[\w-]+", text))
    return words


def _was_answered(world: World, one: Request) -> bool:
    """Return whether a process had the whole answer to a create, and was not killed."""
    if one.kind != "create" or not one.is_good or one.is_cut or may_be_unread(world, one):
        return False
    process = next(each for each in world.processes if each.name == one.sender.rpartition(".")[0])
    return process.end not in {"", "killed"} and one.heard <= process.ended_at


def _unstored(ledger: Ledger) -> Iterator[str]:
    """P17: a draining waits until the blocks of `recording` were left, or returns the jobs that are not stored."""
    for create in ledger.creates:
        left = ledger.left.get(create.sender)
        if left is None or left.drained == inf or create.job is None or create.job.id not in ledger.stored:
            continue
        moment, is_stored = ledger.stored[create.job.id]
        is_reported = create.job.id in left.unrecorded or moment < left.begun
        if not is_reported and not (is_stored and moment <= left.drained + 1e-6):
            yield f"P17: the draining of {create.sender} ended before {create.job.id} was stored, and does not say so"


def _is_disk_bad(world: World, ledger: Ledger, sender: str) -> bool:
    """Return whether an id may be in the log alone: the disk failed, or was slower than what leaves may wait."""
    kinds = {fault.what for fault in world.happened if fault.where == "commit"}
    left = ledger.left.get(sender)
    waited = left is None or left.drained == inf or left.drained > left.until + RECORDING_SECONDS - 0.3
    # What is cancelled leaves at once.
    waited |= bool(ledger.cancelled) or any(one.interrupted_at < inf for one in world.processes)
    is_stalled = any(fault.what == "stall" for fault in world.happened)
    return bool(kinds & {"fail", "full", "lost"}) or is_stalled or ("slow" in kinds and waited)


def _untold(one: Request, calls: list[Create | Wait], ledger: Ledger, *, is_logged: bool) -> Iterator[str]:
    """P2: the caller has the job; or it is in the log, and in a note of a cancellation; hooks are told in any case."""
    has_it = any(call.job is not None and call.job.id == one.job_id for call in calls)
    has_it |= any(getattr(getattr(call.error, "ref", None), "job_id", None) == one.job_id for call in calls)
    if not has_it and not is_logged:
        yield f"P2: {one.job_id} of {one.subject} was answered at {one.heard:g}, and its caller was not told"
    for error in [call.error for call in calls if isinstance(call.error, asyncio.CancelledError) and call.job is None]:
        if not any(one.job_id in note for note in getattr(error, "__notes__", ())):
            yield f"P2: the cancellation of {one.subject} has no note of {one.job_id}, answered at {one.heard:g}"
    if one.job_id not in ledger.told_to_hooks:
        yield f"P2: {one.job_id} of {one.subject} was answered at {one.heard:g}, and no hook was told"
