"""The hooks of a session or tracker, and the events that they are called with. Loaded with the first hook."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Final

from agentjobs_async.errors import AgentJobsError, CreateOutcome
from agentjobs_async.models import AgentJob, JobRef
from agentjobs_async.telemetry import events
from agentjobs_async.telemetry.no_hooks import Hooks
from agentjobs_async.telemetry.observers import GuardedCallback, Hook, SpanHook, call_in

__all__ = ["EventHooks"]

_SOURCES: Final = count(1)
_OF_SPANS: Final = (events.RunStarted, events.CreateStarted, events.RunEnded)  # other events say the same


class EventHooks(Hooks):
    """Makes all events of one session or tracker, and calls its hooks with them, each contained.

    Args:
        hooks: The hooks, in the order in which they are called.
        server_address: The host of the service; `None` where the jobs are read by a callable of the user's.

    Raises:
        InvalidInputError: A hook is a class, not callable, or async.
    """

    def __init__(self, hooks: Sequence[Hook], server_address: str | None) -> None:
        guarded = [(hook, GuardedCallback("a hook", hook)) for hook in hooks]
        self._hooks = [call for _, call in guarded]
        self._span_hooks = [call for hook, call in guarded if isinstance(hook, SpanHook) and hook.makes_spans]
        counts = [_poll_count_of(hook) for hook in hooks]
        self._poll_counts = [count_poll for count_poll in counts if count_poll is not None]
        """Called in place of their hooks, for each poll that shows no end: events would be most of what these cost."""
        self._poll_hooks = [call for call, count_poll in zip(self._hooks, counts, strict=True) if count_poll is None]
        self._server_address = server_address
        self._source = next(_SOURCES)
        self._waits: dict[Hashable, tuple[Context, str | None]] = {}
        """The context in which each wait began, and its label."""

    def _emit(self, event: events.Event) -> None:
        _call(self._span_hooks if isinstance(event, _OF_SPANS) else self._hooks, event)

    # Creates and runs: in the context of their caller.

    async def run(self, project_id: object, label: object, work: Awaitable[AgentJob]) -> AgentJob:
        """Return what `work` returns, which is a `run_job`. `project_id` and `label` are not checked yet."""
        project = project_id if isinstance(project_id, str) else None
        named = label if isinstance(label, str) else None
        clock = asyncio.get_running_loop().time
        began = clock()
        self._emit(events.RunStarted(project, label=named))
        try:
            job = await work
        except BaseException as error:
            self._emit(events.RunEnded(project, None, error, clock() - began, label=named))
            raise
        self._emit(events.RunEnded(project, job, None, clock() - began, label=named))
        return job

    def create_started(self, project_id: str, server_address: str, label: str | None) -> None:
        """Report that a create began."""
        self._emit(events.CreateStarted(project_id, server_address, label=label))

    def created(self, job: AgentJob, elapsed: float, tries: int) -> None:
        """Report that a create gave a job."""
        self._emit(events.JobCreated(job, elapsed, tries, label=job.label))

    def create_retried(
        self, project_id: str, error: AgentJobsError, tries: int, delay: float, prompt_sha256: str, label: str | None
    ) -> None:
        """Report that a create is about to be repeated."""
        self._emit(events.CreateRetried(project_id, error, tries, delay, prompt_sha256, label=label))

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
        self._emit(events.CreateFailed(project_id, outcome, error, elapsed, tries, prompt_sha256, label=label))

    def key_requested(self, error: AgentJobsError | None, *, changed: bool) -> None:
        """Report that a callable was asked for another key; in an empty context, since it was asked for all calls."""
        Context().run(self._emit, events.KeyRequested(changed, error))

    # Waits: in a copy of the context in which each began.

    def wait_started(self, wait: Hashable, ref: JobRef, label: str | None) -> None:
        """Report that a wait began; `wait_ended` must follow."""
        context, _ = self._waits[wait] = copy_context(), label
        call_in(context, self._emit, events.WaitStarted(ref, label=label, source=self._source))

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
        context, label = self._waits.pop(wait)
        job, error = (result, None) if isinstance(result, AgentJob) else (None, result)
        address, source = self._server_address, self._source
        event = events.WaitEnded(ref, job, error, polls, elapsed, lateness, shared, address, label=label, source=source)
        call_in(context, self._emit, event)

    def left(self, job: AgentJob, cut: BaseException) -> None:
        """Report a wait that was over before its first poll, since the caller of the create was cut by `cut`."""
        wait = object()
        self.wait_started(wait, job.ref, job.label)
        self.wait_ended(wait, job.ref, cut, 0, 0.0, None, shared=False)

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
        hooks = self._hooks
        if lateness is None:
            hooks = self._poll_hooks
            for count_poll in self._poll_counts:
                count_poll(job.project_id)
        if hooks:
            event = events.JobPolled(job, poll_number, elapsed, lateness, label=label, source=self._source)
            Context().run(_call, hooks, event)
        if previous is not None and previous != job:
            Context().run(self._emit, events.JobChanged(job, previous, label=label, source=self._source))

    def poll_failed(
        self, ref: JobRef, error: BaseException, poll_number: int, elapsed: float, label: str | None
    ) -> None:
        """Report that a poll did not show a job."""
        Context().run(self._emit, events.PollFailed(ref, error, poll_number, elapsed, label=label, source=self._source))


def _poll_count_of(hook: Any) -> Callable[[str], object] | None:
    """Return what counts the polls for a hook of the package; its class has it, whereas a mock has any attribute."""
    return hook._count_poll if "_count_poll" in vars(type(hook)) else None  # noqa: SLF001 - see above


def _call(hooks: list[GuardedCallback], event: events.Event) -> None:
    for hook in hooks:
        hook(event)
