"""The way of one item: its create, then the wait for its job."""

from math import inf
from typing import Final

from agentjobs_async import AgentJob, JobRef, NotFoundError, WaitTimeoutError
from agentjobs_async.batch._create_failures import ends_the_run
from agentjobs_async.batch._item_create import Ended, ItemCreate
from agentjobs_async.batch._item_run import ItemRun, Phase
from agentjobs_async.batch.items import BatchResult, Outcome
from agentjobs_async.telemetry.links import resumed_from

__all__ = ["run_item"]

_LEAST_SECONDS: Final = 0.001  # the time of an item may be up, and the session takes no timeout of 0


async def run_item(item: ItemRun) -> BatchResult | None:
    """Return the result of an item; `None` when another owner has the row, or when nothing more is to be done.

    The latter leaves it planned where the server refuses the creates of its project.

    Raises:
        JournalError: The journal can't be written. A job id that it could not take is logged.
        NotSentError: The server's certificate is not trusted, or the proxy refuses.
        SessionClosedError: The session was closed.
    """
    try:
        target: AgentJob | JobRef | str | None = item.ref
        resumed_from.set(item.row.traceparent)  # `None` unless an earlier run created the job
        if target is None:
            created = await ItemCreate(item).run()
            if isinstance(created, Ended):
                return created.result
            target = created.job
        if item.phase >= Phase.ANSWERS_ONLY:
            return None
        await item.context.slots.take(item.slot, has_job=True)
        return await _wait(item, target)
    finally:
        item.over = True


async def _wait(item: ItemRun, target: AgentJob | JobRef | str) -> BatchResult:
    left = item.left_seconds
    timeout = None if left == inf else max(left, _LEAST_SECONDS)
    try:
        item.watch = item.context.session.watch(target, timeout=timeout)
        job = await item.watch
    except Exception as error:  # noqa: BLE001 - no error of one wait may end another item, a get_job's own included
        return await _unfinished(item, error)
    await item.context.entries.mark_ended(item.row.key, job, item.polls)
    return BatchResult(item.row.item, Outcome(job.status), job, None, job.ref)


async def _unfinished(item: ItemRun, error: Exception) -> BatchResult:
    if ends_the_run(error):
        raise error
    if isinstance(error, NotFoundError):
        # Beyond its grace: the session has ridden out what may pass.
        gone = item.ref.job_id if isinstance(item.ref, JobRef) else item.ref
        await item.context.entries.abandon(item.row.key, f"its job is gone: {error.message}", item.polls, of_job=gone)
        return item.result(Outcome.FAILED, error)
    await item.context.entries.record_error(item.row.key, error, item.polls)
    if isinstance(error, WaitTimeoutError):
        return item.result(Outcome.TIMED_OUT, error, error.last_job)
    return item.result(Outcome.UNFINISHED, error)
