"""Whether each result was what was recorded, and was told by one run."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from agentjobs_async.batch import State
from tests.simulation.postgresql.records import CALLED_SECONDS, CLOCKS_SECONDS, JOB_ENDS, Records, Report


def told_by_one(records: Records) -> Iterator[str]:
    """Result: each end of an item is told by one run: the one that had it, unless anything befell that."""
    told: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for one in records.said("result"):
        told[one.about["key"], one.about["outcome"]].append(one)
    for (key, outcome), calls in told.items():
        if outcome in {"timed_out", "active"}:
            continue
        if len(calls) > (ends := records.times_of(key, State(outcome), inf)):
            senders = [one.sender for one in calls]
            yield f"Result: {senders} say that {key} is {outcome}, which it became {ends} times"
    for key in records.rows:
        for before, after in pairwise([one for one in records.changes if one.key == key]):
            sender = records.senders.get(before.owner or 0)
            is_end = before.state is State.ACTIVE and after.state in JOB_ENDS and not after.is_followed
            if not is_end or sender is None or after.is_unfollowed or key[0] != "b":
                continue
            if records.is_troubled(sender, before.at, after.at + CALLED_SECONDS):
                continue
            if not any(one.sender == sender for one in told[key, after.state.value]):
                yield f"Result: {sender} has recorded that {key} is {after.state}, and does not say so"


def finished(records: Records) -> Iterator[str]:
    """Result: a run that ends by itself once the troubles are over leaves no item of its own open."""
    for one in records.said("finished"):
        if one.about["open"]:
            yield f"Result: the run of {one.sender} has ended, and {one.about['open']} are open"


def true_results(records: Records) -> Iterator[str]:
    """Result: what a run or a worker returns is what was recorded, of the item's own job."""
    for one in records.said("result"):
        key, outcome, job_id = one.about["key"], one.about["outcome"], one.about["job"]
        if outcome in {"timed_out", "active"}:
            continue
        if not records.was(key, State(outcome), by=one.at + CLOCKS_SECONDS):
            yield f"Result: {one.sender} says that {key} is {outcome}, which was not recorded"
        job = records.jobs.get(job_id or "")
        end = job.end if job is not None and outcome not in JOB_ENDS else outcome  # abandoned while the job ended
        if job_id is not None and (job is None or (job.end, job.prompt) != (end, key)):
            yield f"Result: {one.sender} says that {key} is {outcome}, by {job_id}: {job}"
