"""The open jobs of a run, kept beside its journal: they can be found again whatever becomes of the file."""

from agentjobs_async import Event, JobCreated, JobPolled, JobRef, NotFoundError, WaitEnded, WaitStarted

__all__ = ["OpenJobs"]


class OpenJobs:
    """A hook that keeps the jobs that this run created or waited for, until they are seen to end."""

    def __init__(self) -> None:
        self._recorded: dict[JobRef, bool] = {}

    def __call__(self, event: Event, /) -> None:
        """Keep a job, or drop it."""
        match event:
            case JobCreated(job):
                self._recorded[job.ref] = False
            case WaitStarted(ref):  # a batch waits only for jobs that its journal has
                self._recorded[ref] = True
            case JobPolled(job) if job.is_terminal:
                self._recorded.pop(job.ref, None)
            case WaitEnded(ref, job, error):
                if (job is not None and job.is_terminal) or isinstance(error, NotFoundError):
                    self._recorded.pop(ref, None)

    @property
    def all(self) -> list[JobRef]:
        """All open jobs."""
        return list(self._recorded)

    @property
    def unrecorded(self) -> list[JobRef]:
        """The open jobs that the journal may not have."""
        return [ref for ref, recorded in self._recorded.items() if not recorded]
