"""Batches: many prompts, a journal of how each of them ended, and runs that continue where an earlier one stopped.

Needs the extra `batch`. SQLAlchemy is behind `_store`, where `sqlite` and `postgresql` know the two databases, and
`entries` what a row may do.
"""

from agentjobs_async._extras import extra_named

with extra_named("agentjobs_async.batch"):
    from agentjobs_async.batch._store.moving import move_journal
    from agentjobs_async.batch._store.rows import JournalRow, Rows
    from agentjobs_async.batch.items import BatchItem, BatchResult, Outcome, Refusals, check_items
    from agentjobs_async.batch.journal import Journal
    from agentjobs_async.batch.limits import FleetLimits, Rate
    from agentjobs_async.batch.runner import Batch, run_batch
    from agentjobs_async.batch.states import State
    from agentjobs_async.batch.stats import ActiveItem, BatchStats
    from agentjobs_async.batch.where import Where
    from agentjobs_async.batch.worker import BatchWorker

__all__ = [
    "ActiveItem",
    "Batch",
    "BatchItem",
    "BatchResult",
    "BatchStats",
    "BatchWorker",
    "FleetLimits",
    "Journal",
    "JournalRow",
    "Outcome",
    "Rate",
    "Refusals",
    "Rows",
    "State",
    "Where",
    "check_items",
    "move_journal",
    "run_batch",
]
