"""What happens to jobs while they are waited for."""

from agentjobs_async.errors import TransportError
from agentjobs_async.telemetry import JobChanged, JobPolled, PollFailed, WaitEnded, WaitStarted
from agentjobs_async.telemetry.wait_notes import WaitNotes
from tests.polled import ACTIVE, DONE, REF

FAILED = PollFailed(REF, TransportError("reset"), 1)
BEGUN, ENDED = WaitStarted(REF), WaitEnded(REF, DONE, None, 1, 1.0)


def test_each_wait_gets_its_own() -> None:
    """A wait gets what happened since it began; the last one takes the record of the job with it."""
    notes = WaitNotes(polls=False)
    notes.begin(BEGUN)
    notes.begin(BEGUN)
    notes.on_poll(FAILED)
    (note,) = notes.end(ENDED, 0)
    assert note.name == "unreachable"
    assert list(notes.end(ENDED, note.time_ns + 1)) == []
    notes.begin(BEGUN)
    assert list(notes.end(ENDED, 0)) == []


def test_changes_of_status_only() -> None:
    """A change is noted if it is one of the status."""
    notes = WaitNotes(polls=False)
    notes.begin(BEGUN)
    notes.on_change(JobChanged(ACTIVE, ACTIVE))
    notes.on_change(JobChanged(DONE, ACTIVE))
    assert [note.attributes for note in notes.end(ENDED, 0)] == [{"agentjobs.job.status": "completed"}]


def test_last_hundred() -> None:
    """Of many notes the newest hundred are kept."""
    notes = WaitNotes(polls=True)
    notes.begin(BEGUN)
    for number in range(150):
        notes.on_poll(JobPolled(ACTIVE, number, float(number)))
    found = [note.attributes["agentjobs.poll.duration"] for note in notes.end(ENDED, 0)]
    assert found == [float(number) for number in range(50, 150)]


def test_job_that_is_not_waited_for() -> None:
    """A poll that was cut after the last wait, or a wait whose start the hook did not see, is no fault."""
    notes = WaitNotes(polls=True)
    notes.on_poll(FAILED)
    notes.on_poll(JobPolled(ACTIVE, 1))
    notes.on_change(JobChanged(DONE, ACTIVE))
    assert list(notes.end(ENDED, 0)) == []
