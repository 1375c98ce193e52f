"""Whether one owner at a time had each job, and its follower told of it."""

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Final

from agentjobs_async.batch import State
from tests.simulation.postgresql.records import BLOCK, CALLED_SECONDS, CLOCKS_SECONDS, Change, Records

_LEAVING_SECONDS: Final = 11.0  # the grace of a block, and a second for its commits


def one_follower(records: Records) -> Iterator[str]:
    """Teller: one process follows each job; another one takes over only where that has left, or was silent."""
    for key in records.rows:
        for before, after in pairwise([one for one in records.changes if one.key == key and one.is_followed]):
            is_left = before.follower is not None and before.follower != after.follower
            if is_left and before.state.is_open and not may_lose(records, before.follower, before.at, after.at):
                sender, taker = (records.senders.get(one.follower or 0) for one in (before, after))
                yield f"Teller: {taker} takes {key} over from {sender}, which is alive, at {after.at:.3f}"


def may_lose(records: Records, process: int | None, since: float, at: float) -> bool:
    """Return whether a process may lose what it has: it was silent, has left its block since then, or has ended."""
    sender = records.senders.get(process or 0)
    # A statement takes its time: a heartbeat may be recorded after it began.
    beats = [moment for moment, of in records.beats if of == process and moment <= at - CALLED_SECONDS]
    patience = records.plan.owner_timeout - records.lateness_in(at - 2 * records.plan.owner_timeout, at)
    is_silent = at - max(beats, default=-inf) > patience - CLOCKS_SECONDS
    found = (one for one in records.reports if one.sender == sender and one.what in BLOCK)
    blocks = sorted(found, key=lambda one: one.at)
    begun = [one.what for one in blocks if one.at <= since - CLOCKS_SECONDS]
    has_left = begun[-1:] != ["enters"] or any(
        one.what != "enters" and since - CLOCKS_SECONDS <= one.at <= at + CLOCKS_SECONDS for one in blocks
    )
    return sender is None or is_silent or has_left or records.end_of(sender) <= at


def one_poller(records: Records) -> Iterator[str]:
    """Owner: each job is polled by one owner at a time, which loses it only where it has left, or was silent."""
    for key in records.rows:
        for before, after in pairwise([one for one in records.changes if one.key == key]):
            is_same = before.state is after.state is State.ACTIVE and before.job_id == after.job_id
            if not is_same or before.owner in {None, after.owner} or after.is_unfollowed or _timed_out(records, before):
                continue
            if not may_lose(records, before.owner, before.at, after.at) and not _leaves(records, before, after):
                sender, taker = (records.senders.get(one.owner or 0) for one in (before, after))
                yield f"Owner: {sender}, which is alive, loses {key} to {taker} at {after.at:.3f}"
    yield from _foreign_polls(records)


def _leaves(records: Records, before: Change, after: Change) -> bool:
    """Return whether an owner frees a row itself as it leaves its block, which it reports once all rows are free."""
    sender = records.senders.get(before.owner or 0)
    return after.owner is None and sender is not None and records.end_of(sender) <= after.at + _LEAVING_SECONDS


def _timed_out(records: Records, row: Change) -> bool:
    return any(
        one.about["key"] == row.key and one.about["outcome"] in {"timed_out", "active"}
        for one in records.said("result")
    )


def _foreign_polls(records: Records) -> Iterator[str]:
    """Yield polls of jobs that another owner had, by processes that nothing befell."""
    slack = CLOCKS_SECONDS + records.lateness
    for one in [one for one in records.requests if one.kind == "poll"]:
        changes = [row for row in (*records.changes, *records.tries) if row.job_id == one.subject]
        begun = [row for row in changes if row.at <= one.at - slack]
        in_force = [*begun[-1:], *(row for row in changes if one.at - slack < row.at <= one.at + slack)]
        owners = {row.owner if row.state is State.ACTIVE else None for row in in_force}
        process = records.processes.get(one.sender)
        if in_force and None not in owners and process not in owners:
            since = one.at - 2 * records.plan.owner_timeout
            if not records.is_troubled(one.sender, since, one.at + slack):
                yield f"Owner: {one.sender} polls {one.subject} at {one.at:.3f}, which {owners} own"


def freed_in_time(records: Records) -> Iterator[str]:
    """Owner: what a killed process had is free once its time is over, where another one lives on."""
    timeout = records.plan.owner_timeout
    for sender, ended in records.exits.items():
        if not any(one.what == "kill" and one.sender == sender for one in records.happened):
            continue
        due = ended + timeout + 2 * timeout / 4 + CALLED_SECONDS
        due += records.lateness_in(ended, due)
        living = [
            one.sender
            for one in records.said("enters")
            if one.sender != sender and one.at < ended and not records.is_troubled(one.sender, ended - timeout, due)
        ]
        kinds = {one.about["program"] for one in records.said("begins") if one.sender in living}
        process = records.processes.get(sender)
        for key in records.rows if process is not None else ():
            rows = [row for row in records.changes if row.key == key and row.at <= due]
            takers = {"durable"} if rows and rows[-1].follower is not None else {"batch", "worker"}
            if rows and rows[-1].owner == process and rows[-1].state is State.ACTIVE and kinds & takers:
                yield f"Owner: {key} is still that of {sender} at {due:.3f}, which was killed at {ended:.3f}"
