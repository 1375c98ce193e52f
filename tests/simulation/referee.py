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
P13: One poll of a job at a time, and none after its end.
P14: No job disturbs another one, no project another project.
P16: What the service says is cleaned before it is shown.
P17: Closing ends in time, and leaves nothing.
P18: Waiting for a slot is no fault of the service.
P19: No context of one caller reaches another one.
P21: Under a limit no job stays unseen for longer than two fair turns.
Durable: `on_end` is told each end, the true one. Counters: stats return to 0. World: what ends in none of these ways.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import ceil, inf
from pathlib import Path
from typing import Final

from agentjobs_async import (
    CreateOutcome,
    NotSentError,
    SessionClosedError,
)
from agentjobs_async.batch import JournalRow, State
from tests.simulation.ledger import KEY, Calls, Create, Ledger, Program
from tests.simulation.poll_rules import SLACK, broken_by_polls, most_at_once
from tests.simulation.service import Job, Request, Service
from tests.simulation.world import World

_LONGEST_BACKOFF: Final = 10.2  # s, between two tries of a create


def broken_promises(
    world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...], folder: Path
) -> Iterator[str]:
    """Yield what was broken, one sentence each."""
    yield from world.violations
    polls: dict[tuple[str, str], list[Request]] = defaultdict(list)
    creates: dict[str, list[Request]] = defaultdict(list)
    for request in sorted(service.requests, key=lambda one: one.left):
        if request.kind == "poll":
            polls[request.sender, request.subject].append(request)
        else:
            creates[request.sender].append(request)
    yield from _creates(world, service, ledger)
    yield from _rows(world, service, ledger, programs)
    yield from _ends(world, service, ledger)
    yield from broken_by_polls(world, service, polls, ledger, programs)
    yield from _runs(service.requests, ledger)
    yield from _limits(world, service.requests, creates, polls, ledger)
    yield from _rates(world, creates, ledger)
    yield from _outages(world, service.requests, ledger, programs)
    yield from _causes(world, ledger)
    yield from (f"P10: the key is in {file.name}" for file in folder.iterdir() if KEY.encode() in file.read_bytes())


def _causes(world: World, ledger: Ledger) -> Iterator[str]:
    """P8 and P18: nothing fails, and nothing takes long, without a cause."""
    ends = {None, CreateOutcome.CREATED}  # without one it was cancelled
    failed = [one for one in ledger.creates if one.outcome not in ends and one.sender not in ledger.closed]
    if not world.happened and (ledger.poll_failures or failed):
        yield "P18: something failed in a world without faults"
    is_reachable = not any(fault.where in {"connection", "lookup", "time"} for fault in world.happened)
    if is_reachable and any(one.outcome is CreateOutcome.NOT_SENT for one in failed):
        yield "P18: something was not sent, though the server could always be reached"
    if is_reachable and ledger.not_sent:
        yield "P18: a poll was not sent, though the server could always be reached"
    kinds = {fault.what for fault in world.happened}
    # A callback that swallows its cancellation is left behind after 10 s; a slow disk may take half a second more.
    allowed = 10.5 if "swallow" in kinds else 0.6 if "slow" in kinds else 0.1
    for cancelled, left in ledger.cancelled:
        if left - cancelled > allowed + SLACK and not world.stalled(cancelled, left):
            yield f"P8: leaving took {left - cancelled:g} s after a cancellation at {cancelled:g}"


def _creates(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """P6, P7, P8 and P17: a create ends in time, tries as often as it may, and sends nothing afterwards."""
    is_broken = any(fault.where == "connection" for fault in world.happened)
    tries: dict[str, list[Request]] = defaultdict(list)
    for one in service.requests:
        tries[one.subject].append(one)
    for create in ledger.creates:
        prompt, sent = create.prompt, tries[create.prompt]
        yield from _outcome(world, service, create, sent)
        late = create.ended - create.begun - create.timeout
        if 0.25 < late < inf and not world.stalled(create.begun, create.ended):
            yield f"P7: {prompt} ended {late:g} s after its own timeout"
        if isinstance(create.error, NotSentError) and late < -_LONGEST_BACKOFF and create.sender not in ledger.closed:
            yield f"P7: {prompt} gave up {-late:g} s before its own timeout"
        if any(one.left > create.ended + 1e-6 for one in sent):
            yield f"P8: {prompt} was sent after its create had ended"
        if len(sent) > 12 + create.timeout / 5:
            yield f"P6: {prompt} was sent {len(sent)} times in {create.timeout:g} s"
        closed, until = ledger.closed.get(create.sender, (inf, inf))
        is_early = closed < create.ended < until - 0.25 and late < -0.25 and not is_broken
        if (
            create.outcome is CreateOutcome.UNKNOWN
            and is_early
            and sent
            and sent[-1].is_cut
            and sent[-1].fault != "hang up"
        ):
            yield f"P17: {prompt} was cut {create.ended - closed:g} s after the closing, though it had more time"


def _outcome(world: World, service: Service, create: Create, sent: list[Request]) -> Iterator[str]:
    """P2: the caller of a create, or a hook where it was cancelled, is told the truth."""
    prompt, outcome = create.prompt, create.outcome or create.hook_outcome
    agents = service.agents.get(prompt, [])
    is_refused = isinstance(create.error, SessionClosedError) and create.hook_outcome is None  # before it began
    if create.ended < inf and create.hook_outcome is not (outcome if create.job is None else None) and not is_refused:
        yield f"P2: {prompt} is told as {outcome}, and a hook as {create.hook_outcome}"
    if create.job is not None and agents != [create.job.id]:
        yield f"P2: {prompt} is told as created, {create.job.id}; its agents are {agents}"
    if outcome in {CreateOutcome.REJECTED, CreateOutcome.NOT_SENT} and agents:
        yield f"P2: {prompt} is told as {outcome}, and has {agents}"
    if outcome is CreateOutcome.NOT_SENT and any(one.status != 429 for one in sent):
        yield f"P2: {prompt} is told as not sent, and was"
    is_lost = any(create.begun <= one <= create.ended and who == create.owner for one, who in world.network.lost)
    if outcome is CreateOutcome.UNKNOWN and not (
        is_lost or any(one.heard >= create.ended or _is_unknown(one) for one in sent)
    ):
        yield f"P2: {prompt} is told as unknown, without a cause"


def _rows(world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P3: no id is lost, and each row tells the truth, whatever was killed."""
    unsure = {one.subject for one in service.requests if one.kind == "create" and _is_unknown(one)}
    is_cut = any(fault.where == "commit" or fault.what in {"kill", "cancel"} for fault in world.happened)
    for program in [one for one in programs if one.name in ledger.rows]:
        rows = ledger.rows[program.name]
        ended = {one.job_id for one in service.requests if one.is_end and not one.is_cut}
        known: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            known[row.prompt].append(row.job_id or ("unknown" if row.state in _UNSURE else ""))
            if row.state is State.UNKNOWN and not (is_cut or world.network.lost or row.prompt in unsure):
                yield f"P3: {row.key} is unknown, without a cause"
            yield from _row(row, service.jobs.get(row.job_id), ended)
        for prompt, ids in known.items():
            lost = set(service.agents.get(prompt, [])) - set(ids)
            if len(lost) > ids.count("unknown"):
                yield f"P3: the job of {prompt} is lost: {lost}; its rows have {ids}"
        wanted = {key for number, one in enumerate(program.activities) for key in one.keys(f"{program.name}-{number}")}
        if missing := wanted - {row.key for row in rows}:
            yield f"P3: there are no rows of {sorted(missing)}"


def _row(row: JournalRow, job: Job | None, ended: set[str]) -> Iterator[str]:
    if row.state is State.UNKNOWN and row.job_id:
        yield f"P3: {row.key} is unknown, and has the id {row.job_id}"
    if row.job_id and (job is None or job.prompt != row.prompt):
        yield f"P3: {row.key} has the job of another prompt: {row.job_id}"
    elif (
        job is not None
        and row.state in _JOB_ENDS
        and row.error is None
        and (row.state, True) != (job.end, job.id in ended)
    ):
        yield f"P3, P12: {row.key} is {row.state}; its job, seen to end: {job.id in ended}, is {job.end}"


_JOB_ENDS: Final = (State.COMPLETED, State.FAILED, State.ARCHIVED)
_UNSURE: Final = (State.UNKNOWN, State.ABANDONED)


def _ends(world: World, service: Service, ledger: Ledger) -> Iterator[str]:
    """Each durable job has one end, and it is the true one; after an unknown create, a second one."""
    is_disturbed = (
        world.kills or ledger.closed or any(one.where in {"commit", "call", "event", "time"} for one in world.happened)
    )
    for key, ends in ledger.on_end_calls.items():
        kinds = list(dict.fromkeys(ends))
        if len(ends) > len(kinds) and not is_disturbed:
            yield f"Durable: on_end was told {ends} for {key}"
        if key in ledger.settled and key in ledger.on_end_returned and kinds == ["CreateOutcomeUnknownError"]:
            yield f"Durable: on_end was not told of the job that {key} was settled with"
        if kinds[0] == "CreateOutcomeUnknownError":
            del kinds[0]
        if len(kinds) > 1:
            yield f"Durable: on_end was told {kinds} for {key}"
        for kind in kinds:
            if kind.startswith("AgentJob "):
                _, status, job_id = kind.split()
                if service.jobs[job_id].end != status or job_id not in service.agents[key]:
                    yield f"Durable: on_end was told {kind} for {key}"


def _is_unknown(create: Request) -> bool:
    """Return whether its sender cannot know if a create has started an agent."""
    return create.is_cut or not (create.is_good or _is_refused(create))


def _is_refused(create: Request) -> bool:
    return 300 <= create.status < 500 and create.status not in {303, 408}


def _limits(
    world: World,
    requests: list[Request],
    creates: dict[str, list[Request]],
    polls: dict[tuple[str, str], list[Request]],
    ledger: Ledger,
) -> Iterator[str]:
    """P3: nothing is sent while `max_sending` creates are under way, or `max_active` jobs are active."""
    left = {one.job_id: one.left for sent in creates.values() for one in sent}
    projects = Counter(sender for sender, _ in {(one.sender, one.project) for one in requests})
    for sender, batch in ledger.batches.items():
        sent = creates[sender]
        max_active, max_sending = batch.limits(int(sender.split(".")[1]))
        if (most := most_at_once([(one.left, one.heard) for one in sent])) > max_sending:
            yield f"P3: {sender} has {most} creates under way, of {max_sending}"
        spans = []
        unknown = [one for one in sent if _is_unknown(one)]
        is_single = projects[sender] == 1  # it may have taken over items of another batch
        # A run keeps the slots of earlier runs by a clock; of a refusal that was cut, the status may have come.
        is_kept = is_single and not _is_skewed(world)
        for one in [one for one in unknown if is_kept and not _is_refused(one)]:
            settled = [moment for moment in ledger.settled.get(one.subject, []) if moment > one.left]
            spans.append((one.left, min([one.heard + batch.unknown_for, *settled])))
        for begun, until in pairwise(
            [*ledger.runs.get(sender, []), inf]
        ):  # each begins with the active jobs of those before
            for (poller, job_id), found in polls.items():
                if poller == sender and (seen := [poll.left for poll in found if begun <= poll.left < until]):
                    spans.append((max(begun, left[job_id]), max(seen)))
        more = ceil(max_active / 2) if not is_single and (unknown or ledger.settled) else 0
        for one in sent:
            if (active := sum(begin <= one.left < end for begin, end in spans)) > max_active + more:
                yield f"P3: {sender} sends {one.subject} with {active} active jobs, of {max_active + more}"


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
    for sender, batch in ledger.batches.items():
        program, _, number = sender.split(".")
        if batch.rate is None:
            continue
        count, per, scope = batch.rate
        for one in creates[sender]:
            sent[f"{program}.{number}", one.project if scope == "project" else scope, count, per].append(one.arrived)
    for (name, which, count, per), moments in sent.items():
        moments.sort()
        for first, last in zip(moments, moments[count:], strict=False):
            if last - first < per - 1e-6 and not _is_skewed(world):
                yield f"P3: {name} sends {count + 1} creates of {which} in {last - first:g} s, of {count} in {per:g} s"


def _is_skewed(world: World) -> bool:
    return any(fault.what == "clock" for fault in world.happened)


def _outages(world: World, requests: list[Request], ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P6: an outage makes nobody faster. P14: a limit of one project holds back no other one."""
    for since, until, kind in world.outages:
        for program in programs:
            if program.interval > 0 and all(isinstance(one, Calls) for one in program.activities):
                yield from _connects(world, ledger, program, since, until)
        for sender, batch in ledger.batches.items():
            sent = [
                one for one in requests if one.sender == sender and one.kind == "create" and since <= one.begun < until
            ]
            for project in {one.project for one in sent} if kind in {"503", "504", "maintenance"} else ():
                tries = sum(one.project == project and not (one.is_good or one.status == 429) for one in sent)
                # Each run finds it out anew, and so does one that was given an answer amid the outage.
                anew = 1 + sum(since < run < until for run in ledger.runs.get(sender, []))
                anew += sum(one.project == project and one.status != 429 and not _is_unknown(one) for one in sent)
                if tries > anew * (batch.max_sending + 10) + (until - since) / 55.0:
                    yield f"P6: {sender} sends {tries} creates of {project} in the outage at {since:g}"
            if kind == "429 blog" and until - since > 250.0 and batch.rate is None:
                mine = [one for one in requests if one.sender == sender]
                creates = [one for one in mine if one.kind == "create" and one.subject not in ledger.settled]
                polls = [one for one in mine if one.kind == "poll"]
                next_run = min((run for run in ledger.runs.get(sender, []) if run > since), default=inf)
                for requests_of_a_kind in (creates, polls):
                    yield from _others(requests_of_a_kind, since, until, next_run)


def _connects(world: World, ledger: Ledger, program: Program, since: float, until: float) -> Iterator[str]:
    def is_mine(owner: str) -> bool:
        return owner.rpartition(".")[0] == program.name

    waits = [one for one in ledger.waits if is_mine(one.owner) and one.ended > since and one.begun < until]
    runs = [one for one in waits if one.way == "run"]
    creates = [
        *runs,
        *(one for one in ledger.creates if is_mine(one.owner) and one.begun < until and one.ended > since),
    ]
    tries = sum(since <= moment < until and is_mine(owner) for moment, owner in world.network.connects)
    polled = sum(min(one.ended, until) - max(one.begun, since) for one in waits) / program.interval
    allowed = 1.1 * polled + 2 * len(waits) + sum(12 + min(one.timeout, 120.0) / 5 for one in creates)
    if tries > allowed:
        yield f"P6: {program.name} connects {tries} times in the outage at {since:g}, of {allowed:.0f}"


def _others(requests: list[Request], since: float, until: float, next_run: float) -> Iterator[str]:
    """P14: while one project is refused, what a sender has to do for the others is done."""
    if not requests or requests[0].left > since or requests[-1].left < until:
        return
    blocked = [one.left for one in requests if one.status == 429 and since <= one.left < until]
    if not blocked or blocked[0] > since + 100.0 or blocked[-1] < until - 100.0:
        return
    others = [one for one in requests if one.project != "blog"]
    if any(since + 100.0 < one.left < until for one in others):
        return
    before = {one.subject for one in others if one.left < since}
    for one in others:
        if until <= one.left < next_run and (one.kind == "create" or one.subject in before):
            yield f"P14: {one.sender} sends a {one.kind} of {one.project} only after the limit of another project"
