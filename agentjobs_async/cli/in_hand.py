"""The jobs that a batch has in hand: by their ids they are found again, whatever becomes of the journal."""

from agentjobs_async import Event, JobCreated, JobPolled, JobRef, NotFoundError, WaitEnded, WaitStarted

__all__ = ["JobsInHand"]


class JobsInHand:
    """A hook that keeps the jobs which were created or waited for, and were not seen to end."""

    def __init__(self) -> None:
        self._recorded: dict[JobRef, bool] = {}

    def __call__(self, event: Event, /) -> None:
        """Keep a job, or forget it."""
        match event:
            case JobCreated(job):
                self._recorded[job.ref] = False
            case WaitStarted(ref):  # a batch waits for what its journal has
                self._recorded[ref] = True
            case JobPolled(job) if job.is_terminal:
                self._recorded.pop(job.ref, None)
            case WaitEnded(ref, job, error):
                if (job is not None and job.is_terminal) or isinstance(error, NotFoundError):
                    self._recorded.pop(ref, None)

    @property
    def all(self) -> list[JobRef]:
        """All of them."""
        return list(self._recorded)

    @property
    def unrecorded(self) -> list[JobRef]:
        """Those that the journal may not have."""
        return [ref for ref, recorded in self._recorded.items() if not recorded]
