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
P10: The key is nowhere.
P12: Nothing is coerced or invented, and only errors of the package escape.
P13: One poll of a job at a time, and none after its end.
P14: No job disturbs another one, no project another project.
P16: What the service says is cleaned before it is shown.
P17: Closing ends in time, and leaves nothing.
P18: Waiting for a place is no fault of the service.
P19: No context of one caller reaches another one.
P21: Under a limit no job stays unseen for longer than two fair turns.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import ceil, inf
from pathlib import Path
from typing import Final

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
    NotFoundError,
    ProtocolError,
    RejectedError,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async.batch import JournalRow, State
from tests.simulation.ledger import KEY, Batch, Calls, Create, Ledger, Program, Wait
from tests.simulation.service import DOCUMENTS, Job, Request, Service
from tests.simulation.world import World

_SLACK: Final = 0.02  # s, for what a network takes
_MAX_RETRY_AFTER: Final = 60.0  # s, `max_retry_after`
_LONGEST_RELEASE: Final = 10.0  # s, over which the polls that a server held back are spread
_ANSWER_GRACE: Final = 60.0  # s
_NOT_FOUND_GRACE: Final = 30.0  # s
_TRANSIENT: Final = {408, 425, 429, 500, 502, 503, 504}


def broken_promises(
    world: World, service: Service, ledger: Ledger, programs: tuple[Program, ...], folder: Path
) -> Iterator[str]:
    """Yield what was broken, one sentence each."""
    yield from world.violations
    polls: dict[tuple[str, str], list[Request]] = defaultdict(list)
    creates: dict[str, list[Request]] = defaultdict(list)
    for request in service.requests:
        if request.kind == "poll":
            polls[request.sender, request.subject].append(request)
        else:
            creates[request.sender].append(request)
    yield from _creates(world, service, ledger)
    yield from _rows(world, service, ledger, programs)
    yield from _ends(service, ledger)
    yield from _one_at_a_time(world, polls, ledger)
    yield from _paces(polls, ledger, programs)
    yield from _retry_afters(service.requests, ledger)
    yield from _unseen(world, service, polls, ledger, programs)
    yield from _limits(creates, polls, ledger)
    yield from _rates(world, creates, ledger)
    for wait in [one for one in ledger.waits if one.ended < inf]:  # the processes of the others were killed
        yield from _wait(world, service, wait, polls[wait.sender, wait.job_id], ledger)
    yield from _outages(world, service.requests, ledger, programs)
    yield from _causes(world, ledger)
    yield from (f"P10: the key is in {file.name}" for file in folder.iterdir() if KEY.encode() in file.read_bytes())


def _causes(world: World, ledger: Ledger) -> Iterator[str]:
    """P8 and P18: nothing fails, and nothing takes long, without a cause."""
    failed = [
        one for one in ledger.creates if one.outcome is not CreateOutcome.CREATED and one.sender not in ledger.closed
    ]
    if not world.happened and (ledger.poll_failures or failed):
        yield "P18: something failed in a world without faults"
    places, kinds = ({getattr(fault, name) for fault in world.happened} for name in ("where", "what"))
    if not places & {"connection", "lookup", "time"} and any(one.outcome is CreateOutcome.NOT_SENT for one in failed):
        yield "P18: something was not sent, though the server could always be reached"
    if not places & {"connection", "lookup", "time"} and ledger.not_sent:
        yield "P18: a poll was not sent, though the server could always be reached"
    allowed = 10.5 if "swallow" in kinds else 0.6 if "slow" in kinds else 0.1
    for cancelled, left in ledger.cancelled:
        if left - cancelled > allowed + _SLACK and not world.stalled(cancelled, left):
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
        if any(one.left > create.ended + 1e-6 for one in sent):
            yield f"P8: {prompt} was sent after its create had ended"
        if len(sent) > 12 + create.timeout / 5:
            yield f"P6: {prompt} was sent {len(sent)} times in {create.timeout:g} s"
        closed, until = ledger.closed.get(create.sender, (inf, inf))
        is_early = closed < create.ended < until - 0.25 and late < -0.25 and not is_broken
        if create.outcome is CreateOutcome.UNKNOWN and is_early and sent[-1].is_cut and sent[-1].fault != "hang up":
            yield f"P17: {prompt} was cut {create.ended - closed:g} s after the closing, though it had more time"


def _outcome(world: World, service: Service, create: Create, sent: list[Request]) -> Iterator[str]:
    """P2: the caller of a create, or a hook where it was cancelled, is told the truth."""
    prompt, outcome = create.prompt, create.outcome or create.hook_outcome
    agents = service.agents.get(prompt, [])
    if create.job is not None and agents != [create.job.id]:
        yield f"P2: {prompt} is told as created, {create.job.id}; its agents are {agents}"
    if outcome in {CreateOutcome.REJECTED, CreateOutcome.NOT_SENT} and agents:
        yield f"P2: {prompt} is told as {outcome}, and has {agents}"
    if outcome is CreateOutcome.NOT_SENT and any(one.status != 429 for one in sent):
        yield f"P2: {prompt} is told as not sent, and was"
    is_lost = any(create.begun <= one <= create.ended and who == create.owner for one, who in world.network.lost)
    if outcome is CreateOutcome.UNKNOWN and not (is_lost or any(map(_is_unknown, sent))):
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


def _ends(service: Service, ledger: Ledger) -> Iterator[str]:
    """Each durable job has one end, and it is the true one; after an unknown create, a second one."""
    for key, ends in ledger.on_end_calls.items():
        kinds = list(dict.fromkeys(ends))
        if key in ledger.settled and key in ledger.on_end_returned and kinds == ["CreateOutcomeUnknownError"]:
            yield f"Durable: on_end was not told of the job that {key} was settled with"
        kinds = kinds[kinds[:1] == ["CreateOutcomeUnknownError"] :]
        if len(kinds) > 1:
            yield f"Durable: on_end was told {kinds} for {key}"
        for kind in kinds:
            if kind.startswith("AgentJob "):
                _, status, job_id = kind.split()
                if service.jobs[job_id].end != status or job_id not in service.agents[key]:
                    yield f"Durable: on_end was told {kind} for {key}"


def _one_at_a_time(world: World, polls: dict[tuple[str, str], list[Request]], ledger: Ledger) -> Iterator[str]:
    """P13: one poll of a job at a time, and none after its end. P8: nor goes one on after the last wait."""
    for (sender, job_id), found in polls.items():
        found.sort(key=lambda poll: poll.left)
        for first, second in pairwise(found):
            if second.left < first.heard - 1e-6:
                yield f"P13: {sender} polls {job_id} twice at once, at {first.left:g} and {second.left:g}"
        ended = next((one.heard for one in found if one.is_end and one.is_good and not one.is_cut), inf)
        waits = [wait for wait in ledger.waits if wait.job_id == job_id]
        left = max((wait.ended for wait in waits), default=inf)
        is_stalled = world.stalled(found[0].left, found[-1].heard)  # an answer may have come, and not be read in time
        if any(poll.left < left < poll.heard - 0.1 for poll in found) and not is_stalled:
            yield f"P8: {sender} goes on polling {job_id} after {left:g}, when its last wait ended"
        begun = [*(wait.begun for wait in waits), *ledger.runs.get(sender, [])]
        if found[-1].left > ended + 1e-6 and not any(ended <= one < found[-1].left for one in begun) and not is_stalled:
            yield f"P13: {sender} polls {job_id} at {found[-1].left:g}, which has ended at {ended:g}"


def _paces(polls: dict[tuple[str, str], list[Request]], ledger: Ledger, programs: tuple[Program, ...]) -> Iterator[str]:
    """P6: after a fault no job is polled sooner than after an answer; but at a deadline and for a new wait."""
    exact = {}
    for program in programs:
        for place, activity in enumerate(program.activities):
            if program.interval > 0 and isinstance(activity, Calls) and not activity.notifies:
                exact[program.name, str(place)] = program.interval, activity.timeout
    for (sender, job_id), found in polls.items():
        name, _, number = sender.split(".")
        interval, timeout = exact.get((name, number), (0.0, 0.0))
        begun = [wait.begun for wait in ledger.waits if wait.job_id == job_id and wait.way != "run"]
        for first, second in pairwise(sorted(found, key=lambda poll: poll.left) if begun else []):
            is_last = any(abs(second.left - start - timeout + 0.5) < 0.5 + _SLACK for start in begun)
            is_first = any(first.left < start < second.left + _SLACK for start in begun)
            if second.left - first.left < interval - _SLACK and not (is_first or is_last):
                yield f"P6: {sender} polls {job_id} again after {second.left - first.left:g} s, not {interval:g}"


def _retry_afters(requests: list[Request], ledger: Ledger) -> Iterator[str]:
    """P5: nothing is sent before a Retry-After is over."""
    until: dict[tuple[str, str, str], tuple[float, float]] = {}
    heard = [(one.heard, 0, number) for number, one in enumerate(requests) if _is_binding(one, ledger)]
    sent = [(one.left, 1, number) for number, one in enumerate(requests)]
    for moment, is_sent, number in sorted([*heard, *sent]):
        one = requests[number]
        of_job = (one.sender, one.kind, one.subject)
        of_project = (one.sender, one.kind, f"project {one.project}")
        if not is_sent:
            alone = ledger.own_get_job if one.kind == "poll" else ledger.independent_creates
            for scope in [of_job] if one.status != 429 or one.sender in alone else [of_job, of_project]:
                until[scope] = max(until.get(scope, (0.0, 0.0)), (moment + _held_for(one), moment))
            continue
        for held in (of_job, of_project):
            end, since = until.get(held, (0.0, 0.0))
            # What is connecting when another request of its project is refused is under way.
            slack = 1e-6 if held == of_job else _SLACK
            begun = (one.begun if one.kind == "create" else moment) - slack
            if one.kind == "create" and any(since <= run <= moment for run in ledger.runs.get(one.sender, [])):
                continue  # a run knows nothing of what an earlier one was asked
            if since < begun and moment < end - 0.1:  # the head of an answer may come before the rest
                yield f"P5: {held} at {moment:g}, {end - moment:g} s too early"


def _is_binding(one: Request, ledger: Ledger) -> bool:
    """Return whether the Retry-After of an answer holds for what its sender sends next."""
    if one.retry_after is None or one.is_cut:
        return False
    if one.kind == "create":
        return one.status == 429
    if one.is_good:
        return not (one.is_end or one.sender in ledger.own_get_job)  # whose `get_job` returns the job alone
    return one.status in _TRANSIENT or one.status == 200  # others end the wait, and a new one is its caller's


def _held_for(one: Request) -> float:
    """Return for how many seconds an answer's Retry-After holds."""
    return min(one.retry_after or 0.0, _MAX_RETRY_AFTER)


def _unseen(
    world: World,
    service: Service,
    polls: dict[tuple[str, str], list[Request]],
    ledger: Ledger,
    programs: tuple[Program, ...],
) -> Iterator[str]:
    """P5, P14 and P21: no job stays unseen for longer than its delay and two fair turns, unless it is held back."""
    disturbed = [*_disturbed(world)]
    held_back: dict[str, list[Request]] = defaultdict(list)
    moments: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for (sender, job_id), found in polls.items():
        held_back[sender] += [one for one in found if one.retry_after]
        # An answer of another kind may end a wait; its caller begins the next one when it likes.
        moments[sender, job_id] += [(one.left, one.is_good or one.status in _TRANSIENT) for one in found]
    for wait in ledger.waits:
        if isinstance(wait.error, WaitTimeoutError) and wait.way != "run":
            moments[wait.sender, wait.job_id] += [(wait.begun, True), (wait.ended, False)]
    for (sender, job_id), times in moments.items():
        allowed = _longest_gap(sender, programs)
        runs = [(begun, False) for begun in ledger.runs.get(sender, [])]  # each may end the waits of the one before
        for (first, goes_on), (second, _) in pairwise(sorted([*times, *runs])):
            is_late = goes_on and second - first > allowed and (second, False) not in runs
            if is_late and not any(begin < second and first < end for begin, end in disturbed):
                near = [one for one in held_back[sender] if first - _MAX_RETRY_AFTER < one.heard < second]
                both = len({one.project for one in near}) > 1  # two projects that are refused hold all others
                held = [
                    (one.heard, one.heard + _held_for(one))
                    for one in near
                    if both or one.project == service.jobs[job_id].project
                ]
                # A pause of all polls moves them alike, the rest of a job's own Retry-After among it.
                moved = both or len({one.subject for one in near if one.status == 503}) > 1
                most = allowed + (_MAX_RETRY_AFTER if moved else _LONGEST_RELEASE if held else 0.0)
                if (free := second - first - _covered(held, first, second)) > most:
                    yield f"P21: {sender} leaves {job_id} unseen for {free:g} s at {first:g}, of {most:g}"


def _longest_gap(sender: str, programs: tuple[Program, ...]) -> float:
    """Return how many seconds may lie between two polls of a job; infinite where nothing is promised."""
    name, _, place = sender.split(".")
    program = next(one for one in programs if one.name == name)
    activity = program.activities[int(place)]
    if program.interval < 0 or (program.interval == 0 and isinstance(activity, Batch)):
        return inf  # its delays are learned
    if isinstance(activity, Calls):
        waits = 3 * activity.count if activity.way == "shared" else activity.count
    else:  # what follows one journal may take over the jobs of another one
        waits = sum(one.count for one in program.activities if not isinstance(one, Calls))
    if isinstance(activity, Calls) and activity.way == "free":
        return inf  # each wait polls for itself
    turn = max(waits / (program.per_second or inf), 0.3 * waits / program.in_flight)
    return (program.interval or _LONGEST_DELAY) + 2 * turn + (1.0 if isinstance(activity, Calls) else 5.0)


def _disturbed(world: World) -> Iterator[tuple[float, float]]:
    """Yield the times in which polls may be late for another cause."""
    for fault, moment in world.happened.items():
        if fault.where == "lookup" or fault.what in {"silent", "hang", "slow", "late", "stall"}:
            yield moment - 100.0, moment + (1300.0 if fault.where == "job" else 300.0)  # all polls of that job
        elif fault.where == "connection":  # the poll may have been lost before it came
            yield moment - 1.0, moment + 1.0
        elif fault.what == "cancel" or fault.where == "call":  # the next run of a batch begins after 30 s
            yield moment, moment + 40.0
    for since, until, kind in world.outages:
        if kind != "429 blog":
            yield since - 100.0, until + 300.0


def _covered(spans: list[tuple[float, float]], first: float, last: float) -> float:
    """Return how much of the time from `first` to `last` the spans cover."""
    total = 0.0
    for begin, end in sorted(spans):
        total += max(0.0, min(end, last) - max(begin, first))
        first = max(first, min(end, last))
    return total


_LONGEST_DELAY: Final = 9.9  # s, of the default policy


def _most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    most = now = 0
    spans = [(begin, end) for begin, end in spans if end > begin]
    for _, change in sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]):
        now += change
        most = max(most, now)
    return most


def _is_unknown(create: Request) -> bool:
    """Return whether a create may have started an agent, as far as its sender can know."""
    refused = 300 <= create.status < 500 and create.status not in {303, 408}
    return create.is_cut or not (create.is_good or refused)


def _limits(
    creates: dict[str, list[Request]], polls: dict[tuple[str, str], list[Request]], ledger: Ledger
) -> Iterator[str]:
    """P3: nothing is sent while `max_sending` creates are under way, or `max_active` jobs are active."""
    left = {one.job_id: one.left for sent in creates.values() for one in sent}
    for sender, batch in ledger.batches.items():
        sent = creates[sender]
        max_active, max_sending = batch.limits(int(sender.split(".")[1]))
        if (most := _most_at_once([(one.left, one.heard) for one in sent])) > max_sending:
            yield f"P3: {sender} has {most} creates under way, of {max_sending}"
        spans = []
        unknown = [one for one in sent if _is_unknown(one)]
        is_single = len({one.project for one in sent}) == 1  # it may have taken over items of another batch
        for one in unknown if is_single else ():
            settled = ledger.settled.get(one.subject, 0.0)
            end = one.heard + batch.unknown_for
            spans.append((one.left, min(end, settled) if settled > one.left else end))
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


def _rates(world: World, creates: dict[str, list[Request]], ledger: Ledger) -> Iterator[str]:
    """P3: `create_rate` is never exceeded, across restarts either."""
    sent: dict[tuple[str, str, int, float], list[float]] = defaultdict(list)
    for sender, batch in ledger.batches.items():
        program, _, number = sender.split(".")
        if batch.rate is None:
            continue
        count, per, scope = batch.rate
        for one in creates[sender]:
            if one.status not in {401, 403, 429}:  # those started nothing
                sent[f"{program}.{number}", one.project if scope == "project" else scope, count, per].append(one.left)
    skews = any(fault.what == "clock" for fault in world.happened)
    for (name, which, count, per), moments in sent.items():
        moments.sort()
        for first, last in zip(moments, moments[count:], strict=False):
            if last - first < per - 0.2 and not skews:
                yield f"P3: {name} sends {count + 1} creates of {which} in {last - first:g} s, of {count} in {per:g} s"


def _wait(world: World, service: Service, wait: Wait, polls: list[Request], ledger: Ledger) -> Iterator[str]:
    """P4, P7 and P14: a wait ends in time, with the job that was seen to end, and with an error only for a cause."""
    late = wait.ended - wait.begun - wait.timeout
    is_slow = wait.way == "updates" and any(fault.where == "call" for fault in world.happened)  # the reader itself
    if late > 0.25 and not is_slow and not world.stalled(wait.begun, wait.ended):
        yield f"P7: {wait} ended {late:g} s late"
    seen = [one for one in polls if one.is_good and not one.is_cut and wait.begun < one.heard <= wait.ended]
    if isinstance(wait.error, WaitTimeoutError):
        if any(one.is_end and one.heard < wait.begun + wait.timeout - 1e-3 for one in seen):
            yield f"P7: {wait} timed out, with the end in hand"
        if late < -1e-3:
            yield f"P4: {wait} timed out {-late:g} s early"
    elif wait.error is None:
        yield from _wrong_job(wait, service)
    elif isinstance(wait.error, SessionClosedError):
        if wait.sender not in ledger.closed:
            yield f"P17: {wait} ended as closed, though nothing was closed"
    elif isinstance(wait.error, AgentJobsError) and wait.error.outcome is None:  # else it is that of a create
        first = min(one.begun for one in ledger.waits if (one.owner, one.job_id) == (wait.owner, wait.job_id))
        missing = [one for one in polls if one.status != 404 or one.heard > first + _NOT_FOUND_GRACE - _SLACK]
        yield from _error(wait, wait.error, seen, [one for one in missing if one.heard >= wait.begun])


def _wrong_job(wait: Wait, service: Service) -> Iterator[str]:
    end = service.jobs[wait.job_id].end
    if wait.job is None or (wait.job.id, wait.job.status) != (wait.job_id, end):
        yield f"P7, P12: {wait} gave no job of its own that ended as {end}"


def _error(wait: Wait, error: AgentJobsError, seen: list[Request], polls: list[Request]) -> Iterator[str]:
    if not any(_is_cause(one, error) for one in polls):
        yield f"P4: {wait} ended with an error, without a cause"
    elif seen and wait.ended - max(one.heard for one in seen) < _ANSWER_GRACE - _SLACK:
        yield f"P4: {wait} ended with an error too soon after the job was seen"


def _is_cause(poll: Request, error: AgentJobsError) -> bool:
    """Return whether what a poll was answered may end a wait with this error."""
    match error:
        case AuthError():
            return poll.status in {401, 403}
        case NotFoundError():
            return poll.status in {404, 410}
        case RejectedError():
            return 300 <= poll.status < 500 and poll.status not in _TRANSIENT
        case ProtocolError():
            return poll.fault in {*DOCUMENTS, "maintenance"}
    return False


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
                tries = sum(one.project == project and one.status != 429 for one in sent)  # two outages may overlap
                runs = 1 + sum(fault.what == "cancel" for fault in world.happened)  # each finds it out anew
                if tries > runs * (batch.max_sending + 10) + (until - since) / 55.0:
                    yield f"P6: {sender} sends {tries} creates of {project} in the outage at {since:g}"
            if kind == "429 blog" and until - since > 250.0 and batch.rate is None:
                mine = [one for one in requests if one.sender == sender]
                creates = [one for one in mine if one.kind == "create" and one.subject not in ledger.settled]
                yield from _others(creates, since, until)
                yield from _others([one for one in mine if one.kind == "poll"], since, until)


def _connects(world: World, ledger: Ledger, program: Program, since: float, until: float) -> Iterator[str]:
    def is_mine(owner: str) -> bool:
        return owner.rpartition(".")[0] == program.name

    waits = [one for one in ledger.waits if is_mine(one.owner) and one.ended > since and one.begun < until]
    runs = [one for one in waits if one.way == "run"]
    creates = [*runs, *(one for one in ledger.creates if is_mine(one.owner) and one.ended > since)]
    tries = sum(since <= moment < until and is_mine(owner) for moment, owner in world.network.connects)
    polled = sum(min(one.ended, until) - max(one.begun, since) for one in waits) / program.interval
    allowed = 1.1 * polled + 2 * len(waits) + sum(12 + min(one.timeout, 120.0) / 5 for one in creates)
    if tries > allowed:
        yield f"P6: {program.name} connects {tries} times in the outage at {since:g}, of {allowed:.0f}"


def _others(requests: list[Request], since: float, until: float) -> Iterator[str]:
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
        if one.left >= until and (one.kind == "create" or one.subject in before):
            yield f"P14: {one.sender} sends a {one.kind} of {one.project} only after the limit of another project"
