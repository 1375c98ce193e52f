"""What hooks were told wrongly: labels, the order of events, and dates."""

from collections.abc import Iterator
from datetime import datetime

from attrs import define, field

from agentjobs_async import AgentJob, JobRef
from agentjobs_async.telemetry import Event, JobChanged, JobCreated, JobPolled, PollFailed, WaitEnded, WaitStarted
from tests.simulation.documents import Job
from tests.simulation.ledger import Ledger
from tests.simulation.service import Service
from tests.simulation.world import EPOCH


@define(eq=False)
class _Told:
    """What the hooks of one session know of a job, while any wait for it is under way.

    Attributes:
        waits: The labels of the waits under way.
        label: That of the first labelled one.
        polls: How many polls were told.
        job: As the last of them showed it.
        before: As the one before that did.
    """

    waits: list[str | None] = field(factory=list)
    label: str | None = None
    polls: int = 0
    job: AgentJob | None = None
    before: AgentJob | None = None


def broken_by_events(service: Service, ledger: Ledger) -> Iterator[str]:
    """Yield what was wrong in what hooks were told."""
    for source, told in ledger.events.items():
        events = [event for _, event in told]
        yield from (f"Events: {source} is told {words}" for words in _wrong(service, events))
    started: dict[tuple[str, str], list[str | None]] = {}
    for told in ledger.events.values():
        for at, event in told:
            if isinstance(event, WaitStarted):
                started.setdefault((f"{at:.6f}", event.ref.job_id), []).append(event.label)
    for wait in ledger.waits:
        labels = started.get((f"{wait.begun:.6f}", wait.job_id), [])
        if wait.way not in {"free", "run"} and labels and wait.label not in labels:
            yield f"Events: the labels of the waits for {wait.job_id} at {wait.begun:g} are {labels}, not {wait.label}"


def _wrong(service: Service, events: list[Event]) -> Iterator[str]:
    known: dict[JobRef, _Told] = {}
    at_once: set[int] = set()  # ends of waits for a job that was known to have ended: they join no other wait
    for event, after in zip(events, [*events[1:], None], strict=True):
        match event:
            case WaitStarted(ref) if (
                isinstance(after, WaitEnded) and after.ref == ref and after.job and not after.polls
            ):
                at_once.add(id(after))
            case WaitStarted(ref):
                job = known.setdefault(ref, _Told())
                job.waits.append(event.label)
                job.label = job.label if job.label is not None else event.label
            case WaitEnded(ref) if id(event) not in at_once:
                yield from _wrong_end(known, ref, event)
            case JobPolled() | PollFailed():
                yield from _wrong_poll(service, known, event, after)
            case JobChanged():
                yield from _wrong_change(known, event)
            case JobCreated(job=created) if event.label is not None and event.label != service.jobs[created.id].prompt:
                yield f"of the create of {created.id} with the label {event.label}"


def _wrong_end(known: dict[JobRef, _Told], ref: JobRef, event: WaitEnded) -> Iterator[str]:
    job = known.get(ref, _Told())
    if event.label not in job.waits:
        yield f"the end of a wait for {ref} with {event.label}, of waits with {job.waits}"
        return
    if event.job is not None and event.job.label != job.label:
        yield f"the end of {ref} with a job with the label {event.job.label}, not {job.label}"
    job.waits.remove(event.label)
    if not job.waits:
        del known[ref]


def _wrong_poll(
    service: Service, known: dict[JobRef, _Told], event: JobPolled | PollFailed, after: Event | None
) -> Iterator[str]:
    ref = event.job.ref if isinstance(event, JobPolled) else event.ref
    job = known.get(ref)
    if job is None:
        yield f"a poll of {ref}, for which there is no wait"
        return
    job.polls += 1
    if event.poll_number != job.polls:
        yield f"poll {event.poll_number} of {ref} after {job.polls - 1}"
    if event.label != job.label:
        yield f"a poll of {ref} with the label {event.label}, not {job.label}"
    if isinstance(event, JobPolled):
        job.before, job.job = job.job, event.job
        if event.job.label != job.label:
            yield f"a poll of {ref} whose job has the label {event.job.label}, not {job.label}"
        if job.before is not None and job.before != job.job and not isinstance(after, JobChanged):
            yield f"a poll of {ref} that shows a change, and not of the change"
        yield from _wrong_dates(service, service.jobs[ref.job_id], event.job)


def _wrong_change(known: dict[JobRef, _Told], event: JobChanged) -> Iterator[str]:
    job = known.get(event.job.ref, _Told())
    if event.label != job.label:
        yield f"a change of {event.job.ref} with the label {event.label}, not {job.label}"
    if event.job is not job.job or event.previous == event.job or event.previous != (job.before or event.previous):
        yield f"a change of {event.job.ref} from {event.previous} to {event.job}, which no poll has shown"


def _wrong_dates(service: Service, job: Job, shown: AgentJob) -> Iterator[str]:
    """P12: a date is the moment that the service named, in whatever form."""
    created = EPOCH + service.ahead + job.started
    archived = created + job.seconds if shown.status == "archived" else None
    for name, said, moment in (("created", shown.created_at, created), ("archived", shown.archived_at, archived)):
        if not _is_moment(said, moment, 1.0 if not job.form.digits else 0.001):
            yield f"that {job.id} was {name} at {said}, not at {moment}"


def _is_moment(said: datetime | None, moment: float | None, precision: float) -> bool:
    if said is None or moment is None:
        return said is None and moment is None
    return said.tzname() == "UTC" and -1e-5 < moment - said.timestamp() < precision + 1e-5
