"""What a session or tracker reports. Without hooks it goes nowhere, and no event is made."""

from collections.abc import Awaitable, Hashable

from agentjobs_async.errors import AgentJobsError, CreateOutcome
from agentjobs_async.models import AgentJob, JobRef

__all__ = ["Hooks"]


class Hooks:
    """Does nothing with what it is told; `EventHooks`, which is loaded with the first hook, makes events of it."""

    # Creates and runs: in the context of their caller.

    async def run(self, project_id: object, label: object, work: Awaitable[AgentJob]) -> AgentJob:  # noqa: ARG002 - for hooks
        """Return what `work` returns, which is a `run_job`. `project_id` and `label` are not checked yet."""
        return await work

    def create_started(self, project_id: str, server_address: str, label: str | None) -> None:
        """Report that a create began."""

    def created(self, job: AgentJob, elapsed: float, tries: int) -> None:
        """Report that a create gave a job."""

    def create_retried(
        self, project_id: str, error: AgentJobsError, tries: int, delay: float, prompt_sha256: str, label: str | None
    ) -> None:
        """Report that a create is about to be repeated."""

    def create_failed(
        self,
        project_id: str,
        outcome: CreateOutcome,
        error: BaseException,
        elapsed: float,
        tries: int,
        prompt_sha256: str,
        label: str | None,
    ) -> None:
        """Report that a create ended without a job."""

    def key_requested(self, error: AgentJobsError | None, *, changed: bool) -> None:
        """Report that a callable was asked for another key; in an empty context, since it was asked for all calls."""

    # Waits: in a copy of the context in which each began.

    def wait_started(self, wait: Hashable, ref: JobRef, label: str | None) -> None:
        """Report that a wait began; `wait_ended` must follow."""

    def wait_ended(
        self,
        wait: Hashable,
        ref: JobRef,
        result: AgentJob | BaseException,
        polls: int,
        elapsed: float,
        lateness: float | None,
        *,
        shared: bool,
    ) -> None:
        """Report how a wait ended."""

    def left(self, job: AgentJob, cut: BaseException) -> None:
        """Report a wait that was over before its first poll, since the caller of the create was cut by `cut`."""

    # Polls: in an empty context, since they belong to no caller.

    def polled(
        self,
        job: AgentJob,
        previous: AgentJob | None,
        poll_number: int,
        elapsed: float,
        label: str | None,
        lateness: float | None,
    ) -> None:
        """Report that a poll showed a job, which was last known as `previous`."""

    def poll_failed(
        self, ref: JobRef, error: BaseException, poll_number: int, elapsed: float, label: str | None
    ) -> None:
        """Report that a poll did not show a job."""
