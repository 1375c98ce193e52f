"""The tracker: many waits on one event loop, with one series of polls per job and one budget for all."""

from collections.abc import Mapping, Sequence

from agentjobs_async._documents import NO_STATUSES, reader_with
from agentjobs_async._polling.reading import GetJob, GetJobReader
from agentjobs_async._polling.waits import Waits
from agentjobs_async.errors import SessionClosedError
from agentjobs_async.models import AgentJob, JobRef, JobStatus
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.telemetry.observers import Hook, hooks_of

__all__ = ["JobTracker"]


class JobTracker(Waits[AgentJob | JobRef]):
    """Waits for many jobs, which a `get_job` callable reads: one series of polls per job, however many callers wait.

    Use it as `async with`, or call `aclose()`. Constructing needs no running loop; the first call binds the tracker to
    its loop.

    Args:
        get_job: An async callable that takes a `JobRef` and returns an `AgentJob`, or the service's document as a
            mapping. It runs in an empty context, without the context variables of any caller, since it reads for all.
        policy: When a wait polls again, and which faults end it; `None` for the defaults.
        budget: What all polls may use together; `None` for the defaults.
        hooks: Called with each event.
        statuses: The statuses that the service's other words stand for, as of `Dialect`.

    Raises:
        InvalidInputError: An argument is invalid.
    """

    def __init__(
        self,
        get_job: GetJob,
        *,
        policy: PollPolicy | None = None,
        budget: PollBudget | None = None,
        hooks: Sequence[Hook] = (),
        statuses: Mapping[str, JobStatus] = NO_STATUSES,
    ) -> None:
        reader = GetJobReader(get_job, reader_with(statuses))
        super().__init__("tracker", reader, policy, budget, hooks_of(hooks))

    async def aclose(self) -> None:
        """End all waits with `SessionClosedError`. Idempotent. The jobs continue remotely.

        Raises:
            SessionClosedError: The tracker is bound to another loop or to the process that forked this one.
        """
        if self._binding.close():
            error = SessionClosedError("the tracker was closed during the wait")
            self._shutdown.waits.interrupt(error)
            await self._end_waits(error)
