"""The way of one item: its create, then the wait for its job, and the record of its end."""

import asyncio
from collections.abc import Awaitable
from math import inf

from agentjobs_async import AgentJob, AgentJobsError, JobRef, NotFoundError, WaitTimeoutError
from agentjobs_async.batch._create_failures import ends_the_run
from agentjobs_async.batch._item_create import Ended, ItemCreate
from agentjobs_async.batch._item_run import ItemRun, Phase
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.items import BatchResult, Outcome
from agentjobs_async.telemetry.links import resumed_from


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
    ended = await result_of(_watch(item, target))
    job_id = item.ref.job_id if isinstance(item.ref, JobRef) else item.ref
    outcome, item.row = await record_end(item.context.entries, item.row.key, job_id, ended, item.polls)
    if isinstance(ended, AgentJob):
        error = AgentJobsError("its item was given another job meanwhile") if outcome is Outcome.UNFINISHED else None
        return BatchResult(item.row.item, outcome, ended, error, ended.ref, item.row)
    return item.result(outcome, ended, ended.last_job if isinstance(ended, WaitTimeoutError) else None)


async def _watch(item: ItemRun, target: AgentJob | JobRef | str) -> AgentJob:
    timeout = None if item.timeout == inf else item.timeout
    item.watch = item.context.session.watch(target, timeout=timeout)
    return await item.watch


async def result_of(wait: Awaitable[AgentJob]) -> AgentJob | Exception:
    """Return the job or the error with which a wait ends: no error of one wait may end another item."""
    try:
        return await wait
    except Exception as error:  # noqa: BLE001 - a get_job's own, too
        return error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as raised:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return AgentJobsError(f"get_job raised {raised!r}")


async def record_end(
    entries: Entries, key: str, job_id: str | None, ended: AgentJob | Exception, polls: int
) -> tuple[Outcome, JournalRow]:
    """Record how the wait for a job ended, after `polls` polls of it in all.

    Return what that means for its item, and its row as it is then. Where the item was abandoned, or given another job,
    since the wait began, it stays so.

    Raises:
        JournalError: The journal can't be written.
        Exception: `ended`, if every other wait would end with it.
    """
    if isinstance(ended, AgentJob):
        recorded, outcome = await entries.mark_ended(key, ended, polls), Outcome(ended.status)
    elif ends_the_run(ended):
        raise ended
    elif isinstance(ended, NotFoundError):
        # Beyond its grace: the session has ridden out what may pass.
        recorded, outcome = await entries.mark_gone(key, ended, polls, of_job=job_id), Outcome.FAILED
    else:
        recorded = await entries.record_error(key, ended, polls, of_job=job_id)
        outcome = Outcome.TIMED_OUT if isinstance(ended, WaitTimeoutError) else Outcome.UNFINISHED
    if recorded is not None:
        return outcome, recorded
    row = (await entries.get_many([key]))[key]  # of the same end, where a commit was repeated
    return Outcome.UNFINISHED if row.state.is_open else Outcome(row.state.value), row
