"""Cases that broke a promise once, shrunk, each under what was wrong."""

from typing import Final

from tests.simulation.activities import Batch, Calls, Durable, Leave, Program, Sessions
from tests.simulation.agreement import Agreement
from tests.simulation.cases import Case
from tests.simulation.world import Fault


def _case(activity: Batch | Durable, *faults: Fault) -> Case:
    return Case(1, (Program("p0", (activity,), 20.0, 5, None),), faults)


def _endless(count: int) -> Batch:
    return Batch(count, 2, 20, 2, None, 60.0, 0.0, retries=False, changes=False, source="endless", breaks_after=5)


def _shared(max_active: int, position: int | None) -> Batch:
    return Batch(6, 1, max_active, 2, None, 600.0, 0.0, retries=False, changes=False, shared_with=position)


FOUND: Final = {
    "an id that was recorded by a commit whose answer was lost was not followed": _case(
        Durable(1, 0.0, 0.0, waits=False), Fault("commit", 8, "lost", 1.0)
    ),
    "a claim that was cancelled while the disk was slow left a row that nothing sent": _case(
        Durable(1, 0.0, 0.0, waits=True), Fault("commit", 5, "slow", 60.0), Fault("commit", 5, "cancel")
    ),
    "a cancelled block waited for its callbacks": _case(
        Durable(1, 0.0, 30.0, waits=True), Fault("event", 226, "cancel")
    ),
    "a source that swallowed its cancellation and went on was waited for by a task for ever": _case(
        Batch(4, 2, 3, 2, None, 60.0, 0.0, retries=False, changes=False),
        Fault("event", 307, "cancel", 12.0),
        Fault("call", 3, "swallow", 12.0),
    ),
    "the outcome of a create that a cancelled block cut was not recorded when it was cancelled once more": _case(
        Durable(1, 0.0, 0.0, waits=True), Fault("event", 162, "cancel"), Fault("event", 187, "cancel")
    ),
    "a create that a batch of the same process sent counted as unknown to durable jobs": Case(
        seed=3,
        programs=(
            Program(
                "p0",
                (Batch(2, 1, 3, 1, None, 60.0, 100.0, retries=False, changes=False), Durable(2, 0.5, 0.0, waits=True)),
                *(20.0, 5, None),
            ),
        ),
        faults=(Fault("call", 6, "kill", 12.0), Fault("time", 11, "outage", 300.0, "silent")),
    ),
    "a planned item whose failed create had given it a project came twice in a run": _case(
        Batch(2, 1, 1, 1, None, 60.0, 0.0, retries=False, changes=False),
        Fault("time", 0, "outage", 300.0, "refuse"),
        Fault("event", 400, "kill", 1.0),
    ),
    "a create that was cut while the disk failed stayed `sending` for as long as the journal was open": _case(
        Durable(1, 0.0, 0.0, waits=False), Fault("commit", 8, "fail", 0.5), Fault("event", 200, "cancel")
    ),
    "a poll in flight when the first wait with a label began showed the job without it": Case(
        seed=1,
        programs=(
            Program(
                *("p0", (Calls("shared", 4, 0.0, 1800.0),), 20.0, 5, None),
                sessions=Sessions(labels=("none", "own", "other"), label_gap=0.02),
            ),
        ),
        faults=(),
    ),
    "the id of a create whose answer came together with a cancellation was in the log alone": Case(
        seed=1,
        programs=(
            Program(
                "p0",
                (Batch(3, 1, 6, 1, None, 600.0, 0.0, retries=False, changes=False, breaks_after=1),),
                *(20.0, 1, None),
                leave=Leave("SIGTERM", after=0.8, handles=True),
            ),
        ),
        faults=(Fault("answer", 2, "cancel"),),
    ),
    "a draining reported an id as not recorded whose recording went on, and ended well": Case(
        seed=5029,
        programs=(Program("p0", (Durable(3, 0.0, 0.0, waits=False),), 20.0, 5, None, Leave("SIGTERM", after=200.0)),),
        faults=(Fault("answer", 3, "SIGINT"),),
    ),
    "a draining that was cancelled kept its creates until the close, which the referee took for too long": Case(
        seed=903274,
        programs=(
            Program(
                *("p0", (Calls("updates", 2, 3.0, 1800.0),), 5.0, 5, None),
                leave=Leave("drain", after=3.0, grace=0.05, activity=-1, again="cancel"),
            ),
        ),
        faults=(),
    ),
    "a create of a source without an end was refused, which the referee took for an item that came again": Case(
        seed=810032,
        programs=(
            Program(
                *("p0", (_endless(120),), 5.0, 100, 0.5),
                leave=Leave("drain", 0.01, 0.0, activity=-1, starts=2, again="close", replaced_after=0.0, handles=True),
            ),
        ),
        faults=(Fault("create", 120, "400"),),
    ),
    "two batches at once polled and told of items of both, which each had from its own source": Case(
        seed=1, programs=(Program("p0", (_shared(6, None), _shared(1, 0)), 20.0, 5, None),), faults=()
    ),
    "a batch was refused with an old key, and took its project for refused though there was a newer key": Case(
        seed=1,
        programs=(
            Program(
                "p0",
                (Batch(4, 1, 20, 2, (2, 3600.0, "project"), None, 0.0, retries=False, changes=False),),
                *(20.0, 5, None),
            ),
        ),
        faults=(Fault("time", 2000, "new key"),),
        agreement=Agreement(key="plain"),
    ),
    "a create was repeated when its pause was over, and the service had forgotten its idempotency key": Case(
        seed=4191,
        programs=(Program("p0", (Calls("wait", 1, 0.0, 1800.0),), 60.0, 1, None),),
        faults=(Fault("create", 1, "504", 1.0, "seconds 30"),),
        agreement=Agreement(idempotency_header="Idempotency-Key", idempotency_seconds=5.0),
    ),
    "a create was repeated when it was connected, and the service had forgotten its idempotency key": Case(
        seed=1,
        programs=(Program("p0", (Calls("wait", 1, 0.0, 1800.0),), 60.0, 1, None),),
        faults=(Fault("create", 1, "504", 1.0, "seconds 12"), Fault("lookup", 2, "slow", 4.0)),
        agreement=Agreement(idempotency_header="Idempotency-Key", idempotency_seconds=15.0),
    ),
}
