"""Batches that survive anything: many prompts, a journal of what became of each, and runs that go on where one stopped.

Needs the extra `batch`. SQLAlchemy is behind `_tables` and `_database`; `_file` knows SQLite's files.
"""

from agentjobs_async.batch.courses import ActiveItem
from agentjobs_async.batch.entries import Entries, JournalRow, Rows
from agentjobs_async.batch.items import BatchItem, BatchResult, Outcome, Refusals, check_items
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.pace import Rate
from agentjobs_async.batch.runner import Batch, BatchStats, run_batch
from agentjobs_async.batch.states import State

__all__ = [
    "ActiveItem",
    "Batch",
    "BatchItem",
    "BatchResult",
    "BatchStats",
    "Entries",
    "Journal",
    "JournalRow",
    "Outcome",
    "Rate",
    "Refusals",
    "Rows",
    "State",
    "check_items",
    "run_batch",
]
