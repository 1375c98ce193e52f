"""Whether promises were kept: what the journal and the programs say, against what the service knows.

P1: One try starts at most one agent. P3: no id is lost, each row ends, an unknown one has a cause.
P8: Nothing is sent by a run that was left. P10: The key is in no row. P12: Nothing is invented, no program fails.
Place: Each create goes where its row belongs, with the extra of its row.
Sender: Each create has a claim of its own, which was in force.
Teller: Each end was told, after it was recorded, as what it was; again only with a cause.
Result: Each result is what was recorded, and is told by one run. Owner: One owner at a time polls a job.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import inf
from typing import Final

from agentjobs_async.batch import State
from tests.simulation.postgresql import limits, owners, results
from tests.simulation.postgresql.plan import KEY, extra_of
from tests.simulation.postgresql.records import (
    BLOCK,
    CALLED_SECONDS,
    CLOCKS_SECONDS,
    JOB_ENDS,
    Change,
    Records,
    Report,
    Request,
    is_wrong,
)


def broken_promises(records: Records) -> Iterator[str]:
    """Yield what was broken, one sentence each."""
    for rule in RULES:
        yield from rule(records)


def one_agent(records: Records) -> Iterator[str]:
    """P1: there are no more agents than tries."""
    agents: dict[str, list[str]] = defaultdict(list)
    for agent in records.agents:
        agents[agent.prompt].append(agent.job_id)
    for prompt, ids in agents.items():
        tries = max((change.tries for change in records.of_prompt(prompt)), default=0)
        if len(ids) > tries:
            yield f"P1: {prompt} has {len(ids)} agents in {tries} tries: {ids}"


def nothing_lost(records: Records) -> Iterator[str]:
    """P3: each agent is known to a row, or a row of its prompt says that one may be unknown."""
    rows: dict[str, list[Change]] = defaultdict(list)
    for row in records.all_tries:
        rows[row.prompt].append(row)
    for prompt in {agent.prompt for agent in records.agents}:
        known = {row.job_id for row in rows[prompt]}
        lost = [agent.job_id for agent in records.agents if agent.prompt == prompt and agent.job_id not in known]
        unsure = [row for row in rows[prompt] if row.job_id is None and row.state in {State.UNKNOWN, State.ABANDONED}]
        unsure += [row for row in rows[prompt] if is_wrong(row.job_id)]
        if len(lost) > len(unsure):
            yield f"P3: {prompt} has lost {lost}; its rows are {[f'{row.key} {row.state}' for row in rows[prompt]]}"


def true_rows(records: Records) -> Iterator[str]:
    """P12: a row has a job of its own prompt and project, and ended as that."""
    for row in records.all_tries:
        job = records.jobs.get(row.job_id or "")
        if row.job_id is None or is_wrong(row.job_id):
            continue
        if job is None or (job.prompt, job.project) != (row.prompt, row.project):
            yield f"P12: {row.key} has {row.job_id}, which is no job of it"
        elif row.state in JOB_ENDS and row.error is None and row.state != job.end:
            yield f"P12: {row.key} is {row.state}; its job was {job.end}"
        elif row.state in JOB_ENDS and row.error is None and row.at < job.ended:
            yield f"P12: {row.key} was {row.state} before its job was"


def all_ended(records: Records) -> Iterator[str]:
    """P3: somebody is responsible for each item: at the end its row has ended, unless a user has unfollowed it."""
    yield from (f"P3: {key} has no row" for key in sorted(records.plan.keys - records.rows.keys()))
    for row in records.rows.values():
        if row.state.is_open and not (row.is_unfollowed and row.state is State.ACTIVE):
            yield f"P3: {row.key} is {row.state} at the end, and nobody moves it"
    yield from (f"P3: {what}" for what in records.stuck)


def caused(records: Records) -> Iterator[str]:
    """P3: a row is unknown only where its sender was disturbed, or the answer to its create showed nothing."""
    for row in records.changes:
        if row.state is not State.UNKNOWN:
            continue
        claims = [one for one in claims_of(records, row.prompt) if one.key == row.key and one.at <= row.at]
        claimed = claims[-1] if claims else row
        sender = records.senders.get(claimed.owner or 0)
        since = claimed.at - records.plan.owner_timeout  # its heartbeats may have been late before
        is_unsure = any(one.is_unsure and one.subject == row.prompt and one.at <= row.at + 1 for one in records.creates)
        if not is_unsure and not records.is_troubled(sender, since, row.at):
            yield f"P3: {row.key} is unknown without a cause; {sender} had claimed it"


def in_place(records: Records) -> Iterator[str]:
    """Place: each create goes to the project of its row, with its extra; each poll to that of its job."""
    for one in records.requests:
        if one.kind == "create":
            if one.extra != extra_of(one.subject):
                yield f"Place: {one.sender} sends {one.subject} with {one.extra}, not {extra_of(one.subject)}"
            projects = {change.project for change in records.of_prompt(one.subject)}
        else:
            projects = {records.jobs[one.subject].project} if one.subject in records.jobs else set()
            projects |= {change.project for change in records.changes if change.job_id == one.subject}
        if one.project not in projects:
            yield f"Place: {one.sender} sends a {one.kind} of {one.subject} to {one.project}, not to {sorted(projects)}"


def claims_of(records: Records, prompt: str) -> list[Change]:
    """Return the changes by which rows of a prompt were claimed."""
    found, seen = [], set[str | None]()
    for change in records.of_prompt(prompt):
        if change.state is State.SENDING and change.claim not in seen:
            seen.add(change.claim)
            found.append(change)
    return found


def one_sender(records: Records) -> Iterator[str]:
    """Sender: each create was sent under a claim of its own, while that was in force."""
    for prompt in {one.subject for one in records.creates}:
        claims = claims_of(records, prompt)
        for sent in [one for one in records.creates if one.subject == prompt]:
            process = records.processes.get(sent.sender)
            mine = [one for one in claims if one.owner == process and one.at <= sent.at + CLOCKS_SECONDS]
            if not mine:
                yield f"Sender: {sent.sender} sends {prompt} at {sent.at:.3f} without a claim of its own"
                continue
            claims.remove(mine[-1])
            yield from _out_of_force(records, sent, mine[-1])


def _out_of_force(records: Records, sent: Request, claim: Change) -> Iterator[str]:
    arrived = sent.at - CLOCKS_SECONDS - records.lateness
    changes = [one for one in records.changes if one.key == claim.key and claim.at < one.at <= arrived]
    if changes and changes[0].state is not State.SENDING:
        was = f"{arrived - changes[0].at:.3f} s after it was {changes[0].state}"
        yield f"Sender: {sent.sender} sends {sent.subject} at {sent.at:.3f}, {was}"


def one_teller(records: Records) -> Iterator[str]:
    """Teller: each end that is to be told was told, as it was recorded; again only with a cause."""
    told: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for one in records.said("told"):
        told[one.about["key"], one.about["state"]].append(one)
    for (key, state), calls in told.items():
        yield from _true_end(records, key, State(state), calls)
        yield from _told_again(records, key, calls)
    final: dict[str, set[str]] = defaultdict(set)
    for key, state in told:
        final[key] |= {state} - {State.UNKNOWN.value}
    for key, states in final.items():
        if key in records.rows and len(states) > records.rows[key].tries:
            yield f"Teller: {key} was told as {sorted(states)}"
    ended = Counter((row.key, row.state) for row in records.all_tries if row.is_followed and not row.state.is_open)
    for (key, state), count in ended.items():
        returned = [one for one in told[key, state.value] if not one.about["raises"]]
        if len(returned) < count:
            yield f"Teller: the end of {key}, {state}, was never told, or {len(returned)} times instead of {count}"


def _true_end(records: Records, key: str, state: State, calls: list[Report]) -> Iterator[str]:
    if not records.was(key, state, by=min(one.at for one in calls) + CLOCKS_SECONDS):
        yield f"Teller: {key} was told as {state} before it was recorded"
    ends = {(one.about["end"], one.about["job"]) for one in calls}
    if max(len({end for end, _ in ends}), len({job for _, job in ends})) > records.times_of(key, state, inf):
        yield f"Teller: {key}, {state}, was told as {sorted(map(str, ends))}"
    for end, job_id in ends:
        job = records.jobs.get(job_id or "")
        if job_id is not None and (job is None or (job.end, job.prompt) != (end, key)):
            yield f"Teller: {key} was told as {end} of {job_id}, which is {job}"


def _told_again(records: Records, key: str, calls: list[Report]) -> Iterator[str]:
    for first, second in pairwise(calls):
        since = first.at - 2 * records.plan.owner_timeout
        is_caused = first.about["raises"] or records.is_troubled(first.sender, since, second.at)
        # A row that came to a state twice has two such ends, and both may be told after the second one.
        ends = records.times_of(key, State(first.about["state"]), second.at)
        if not is_caused and calls.index(second) >= ends:
            yield f"Teller: {first.sender} and {second.sender} told the end of {key} without a cause to tell it again"


def not_told(records: Records) -> Iterator[str]:
    """Teller: nothing is told of what a user has unfollowed, unless it is planned again."""
    for one in records.said("unfollowed"):
        if not one.about["was_followed"]:
            continue
        changes = [row for row in records.changes if row.key == one.about["key"] and row.at > one.at]
        since = one.at + CALLED_SECONDS
        until = min((row.at for row in changes if row.state is State.PLANNED), default=inf)
        for call in records.said("told"):
            is_late = call.about["key"] == one.about["key"] and since < call.at < until
            if is_late and not records.is_troubled(call.sender, one.at - CALLED_SECONDS, call.at):
                yield f"Teller: {call.sender} told the end of {one.about['key']} at {call.at:.3f}, which was unfollowed"


def nothing_after(records: Records) -> Iterator[str]:
    """P8: what a run has left sends nothing more, nor does a process that has ended."""
    slack = CLOCKS_SECONDS + records.lateness
    for sender in records.processes:
        spans = sorted((one.at, one.what) for one in records.reports if one.sender == sender and one.what in BLOCK[::2])
        for one in [one for one in records.requests if one.sender == sender]:
            before = [what for at, what in spans if at <= one.at - slack]
            entered = any(what == "enters" and one.at - slack < at <= one.at + slack for at, what in spans)
            if (before and before[-1] == "leaves" and not entered) or one.at > records.end_of(sender) + slack + 0.1:
                yield f"P8: {sender} sends a {one.kind} of {one.subject} at {one.at:.3f}, after its run was left"


def no_key(records: Records) -> Iterator[str]:
    """P10: the key is nowhere."""
    if KEY in records.text:
        at = records.text.index(KEY)
        yield f"P10: the key was written: {records.text[max(0, at - 200) : at]}"


def no_failure(records: Records) -> Iterator[str]:
    """P12: a program ends with an error only where its database was cut off, or stood still with it."""
    for one in records.said("fails"):
        is_cut = one.about["error"] == "JournalError" and records.is_troubled(one.sender, one.at - 10, one.at)
        if not is_cut:
            yield f"P12: {one.sender} failed: {one.about['text']}"
    ends = {report.sender for report in records.reports if report.what in {"ends", "fails"}}
    for sender in records.processes:
        if records.end_of(sender) == inf and sender not in ends and not records.stuck:
            yield f"P12: {sender} has not ended"


Rule = Callable[[Records], Iterator[str]]
RULES: Final[tuple[Rule, ...]] = (
    *(one_agent, nothing_lost, true_rows, all_ended, caused, in_place, one_sender, one_teller, not_told),
    *(owners.one_follower, owners.one_poller, owners.freed_in_time),
    *(results.told_by_one, results.finished, results.true_results, nothing_after, no_key, no_failure),
    *(limits.rate, limits.active, limits.polls, limits.stood_still),
)
