"""What was sent beyond a limit, or after its run had ended."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import ceil, inf

from tests.simulation.ledger import Ledger
from tests.simulation.rules.requests import (
    creates_by_sender,
    is_refused,
    is_skewed,
    is_unknown,
    most_at_once,
    polls_by_job,
)
from tests.simulation.service import Request, Service
from tests.simulation.world import World


def broken_by_runs(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """Yield what a batch or durable jobs broke."""
    creates = creates_by_sender(service.requests)
    yield from _runs(service.requests, ledger)
    yield from _limits(world, service.requests, creates, ledger)
    yield from _rates(world, creates, ledger)


def _limits(
    world: World,
    requests: list[Request],
    creates: dict[str, list[Request]],
    ledger: Ledger,
) -> Iterator[str]:
    """P3: nothing is sent while `max_sending` creates are under way, or `max_active` jobs are active."""
    polls = polls_by_job(requests)
    left = {one.job_id: one.left for sent in creates.values() for one in sent}
    of_job: dict[str | None, list[Request]] = defaultdict(list)
    for one in requests:
        of_job[one.job_id if one.kind == "create" else one.subject].append(one)
    projects = Counter(sender for sender, _ in {(one.sender, one.project) for one in requests})
    for sender, batch in ledger.batches.items():
        sent = creates[sender]
        max_active, max_sending = batch.limits(int(sender.split(".")[1]))
        if (most := most_at_once([(one.left, one.heard) for one in sent])) > max_sending:
            yield f"P3: {sender} has {most} creates under way, of {max_sending}"
        spans = []
        unknown = [one for one in sent if is_unknown(one)]
        is_single = projects[sender] == 1  # it may have taken over items of another batch
        # A run keeps the slots of earlier runs by a clock; of a refusal that was cut, the status may have come.
        is_kept = is_single and not is_skewed(world)
        for one in [one for one in unknown if is_kept and not is_refused(one)]:
            settled = [moment for moment in ledger.settled.get(one.subject, []) if moment > one.left]
            spans.append((one.left, min([one.heard + batch.unknown_for, *settled, *_repeated(one, sent)])))
        for begun, until in pairwise([*ledger.runs.get(sender, []), inf]):
            # Each run begins with the active jobs of those before, but for what others have, and leave to it later.
            for (poller, job_id), found in polls.items():
                if poller == sender and (seen := [poll.left for poll in found if begun <= poll.left < until]):
                    others = [one.left for one in of_job[job_id] if one.sender != sender and one.left < min(seen)]
                    is_taken_over = max(others, default=-inf) >= begun
                    is_taken_over |= left[job_id] < begun and _may_be_of_another(sender, begun, min(seen), ledger)
                    spans.append((min(seen) if is_taken_over else max(begun, left[job_id]), max(seen)))
        more = ceil(max_active / 2) if not is_single and (unknown or ledger.settled) else 0
        for one in sent:
            if (active := sum(begin <= one.left < end for begin, end in spans)) > max_active + more:
                yield f"P3: {sender} sends {one.subject} with {active} active jobs, of {max_active + more}"


def _may_be_of_another(sender: str, begun: float, until: float, ledger: Ledger) -> bool:
    """Return whether another run of the same process was under way between two moments: it may have had a job."""
    process = f"{sender.rpartition('.')[0]}."
    for other, runs in ledger.runs.items():
        if other != sender and other.startswith(process):
            for run in runs:
                end = min((end for end in ledger.run_ends.get(other, []) if end >= run), default=inf)
                if run <= until and begun <= end:
                    return True
    return False


def _repeated(doubted: Request, sent: list[Request]) -> Iterator[float]:
    """Yield when a create was sent again with the key of one in doubt: both have one slot."""
    key = doubted.idempotency_key
    for one in sent:
        if key is not None and one.idempotency_key == key and one.left > doubted.left:
            yield one.left


def _runs(requests: list[Request], ledger: Ledger) -> Iterator[str]:
    """P8: a batch, or durable jobs, send nothing once their block was left."""
    for one in requests:
        begun = max((run for run in ledger.runs.get(one.sender, []) if run <= one.left), default=inf)
        for ended in ledger.run_ends.get(one.sender, []):
            if begun <= ended < one.left - 1e-6:
                yield f"P8: {one.sender} sends a {one.kind} of {one.subject} at {one.left:g}, after its run had ended"


def _rates(world: World, creates: dict[str, list[Request]], ledger: Ledger) -> Iterator[str]:
    """P3: no span sees more creates arrive than `create_rate` allows, across restarts either, refused ones included."""
    sent: dict[tuple[str, str, int, float], list[float]] = defaultdict(list)
    for sender, (count, per, scope) in ledger.rates.items():
        program, _, number = sender.split(".")
        for one in creates[sender]:
            sent[f"{program}.{number}", one.project if scope == "project" else scope, count, per].append(one.arrived)
    for (name, which, count, per), moments in sent.items():
        moments.sort()
        for first, last in zip(moments, moments[count:], strict=False):
            if last - first < per - 1e-6 and not is_skewed(world):
                yield f"P3: {name} sends {count + 1} creates of {which} in {last - first:g} s, of {count} in {per:g} s"
