"""The run of one item: its create, then the wait for its job, and the record of its end."""

import asyncio
from collections.abc import Awaitable
from math import inf

from attrs import frozen

from agentjobs_async import AgentJob, AgentJobsError, JobFailedError, JobRef, NotFoundError, WaitTimeoutError
from agentjobs_async.batch._failures import ends_the_run
from agentjobs_async.batch._run.context import Phase, RunningItem
from agentjobs_async.batch._run.item_create import Ended, ItemCreate
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.rows import BatchResult, JournalRow
from agentjobs_async.batch.items import Outcome
from agentjobs_async.batch.states import State
from agentjobs_async.telemetry.links import resumed_from


async def run_item(item: RunningItem) -> BatchResult | None:
    """Return the result of an item; `None` when another owner has the row, or when nothing more is to be done.

    The latter leaves it planned where the server refuses the creates of its project. An item whose row was abandoned
    before it was sent has the outcome `abandoned`.

    Raises:
        JournalError: The journal can't be written. A job id that it could not record is logged.
        NotSentError: The server's certificate is not trusted, or the proxy refuses.
        SessionClosedError: The session was closed.
    """
    try:
        target: AgentJob | JobRef | Ended | None = item.ref
        resumed_from.set(item.row.traceparent)  # `None` unless an earlier run created the job
        if target is None:
            target = await ItemCreate(item).run()
        if isinstance(target, Ended):
            return target.result
        if item.phase >= Phase.ANSWERS_ONLY:
            return None
        await item.context.slots.take(item.slot, has_job=True)
        return await _wait(item, target)
    finally:
        item.over = True


async def _wait(item: RunningItem, target: AgentJob | JobRef) -> BatchResult | None:
    ended = await result_of(_watch(item, target))
    job_id = None if item.ref is None else item.ref.job_id
    recorded, outcome = await record_end(item.context.records, item.row.key, job_id, ended, item.polls)
    item.row = recorded.row
    if not recorded.is_own and _is_of_another(recorded.row, job_id):
        return None
    if isinstance(ended, AgentJob):
        return BatchResult(item.item, outcome, ended, _error_of(ended, outcome), ended.ref, item.row)
    return item.result(outcome, ended, ended.last_job if isinstance(ended, WaitTimeoutError) else None)


def _error_of(job: AgentJob, outcome: Outcome) -> AgentJobsError | None:
    """Return the error of a result that has an ended job; `None` without one."""
    match outcome:
        case Outcome.ACTIVE:
            return AgentJobsError("its item was given another job meanwhile")
        case Outcome.FAILED:
            return JobFailedError(job)
        case _:
            return None


def _is_of_another(row: JournalRow, job_id: str | None) -> bool:
    """Return whether another owner polls the job, or has seen its end: this one had counted as dead."""
    return row.state.is_job_end or (row.state is State.ACTIVE and row.job_id == job_id)


async def _watch(item: RunningItem, target: AgentJob | JobRef) -> AgentJob:
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


@frozen
class Recorded:
    """A row as it is once the wait for its job has ended.

    Attributes:
        row: The row.
        is_own: Whether this end is in it; else another owner or a person had moved it before.
    """

    row: JournalRow
    is_own: bool


async def record_end(
    records: Records, key: str, job_id: str | None, ended: AgentJob | Exception, polls: int
) -> tuple[Recorded, Outcome]:
    """Record how the wait for a job ended, after `polls` polls of it in all.

    Return what was recorded, and what that means for its item. Where the item was abandoned, or given another job,
    since the wait began, it stays so.

    Args:
        records: Those of the run.
        key: The key of the row.
        job_id: The id of its job.
        ended: The job, or the error with which the wait ended.
        polls: How often the job was polled.

    Raises:
        JournalError: The journal can't be written.
        Exception: `ended`, if every other wait would end with it.
    """
    if isinstance(ended, AgentJob):
        recorded, outcome = await records.ended(key, ended, polls), Outcome(ended.status)
    elif ends_the_run(ended):
        raise ended
    elif isinstance(ended, NotFoundError):
        # Beyond its grace: the session has ridden out what may pass.
        recorded, outcome = await records.gone(key, job_id, ended, polls), Outcome.FAILED
    else:
        recorded = await records.noted(key, job_id, ended, polls)
        outcome = Outcome.TIMED_OUT if isinstance(ended, WaitTimeoutError) else Outcome.ACTIVE
    if recorded is not None:
        return Recorded(recorded, is_own=True), outcome
    row = (await records.store.rows_of([key]))[key]
    return Recorded(row, is_own=False), Outcome.ACTIVE if row.state.is_open else Outcome(row.state.value)
