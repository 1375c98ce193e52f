"""Batches: many prompts, a journal of how each of them ended, and runs that continue where an earlier one stopped.

Needs the extra `batch`. SQLAlchemy is behind `_database`, which knows the two databases, and `_store`, which reads and
writes the rows. It is loaded with the first name that needs it, such as `Journal`.
"""

import typing as _typing  # private, as in the package above
from importlib import import_module as _import_module

from agentjobs_async._extras import extra_named as _extra_named

if _typing.TYPE_CHECKING:
    from agentjobs_async.batch._store.moving import move_journal, undo_move
    from agentjobs_async.batch._store.rows import BatchResult, JournalRow, Rows
    from agentjobs_async.batch.items import BatchItem, InvalidItems, Outcome, check_items
    from agentjobs_async.batch.journal import Journal
    from agentjobs_async.batch.limits import Limits, Rate
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
    "InvalidItems",
    "Journal",
    "JournalRow",
    "Limits",
    "Outcome",
    "Rate",
    "Rows",
    "State",
    "Where",
    "check_items",
    "move_journal",
    "run_batch",
    "undo_move",
]

_MODULES: _typing.Final = {
    "ActiveItem": "stats",
    "Batch": "runner",
    "BatchItem": "items",
    "BatchResult": "_store.rows",
    "BatchStats": "stats",
    "BatchWorker": "worker",
    "InvalidItems": "items",
    "Journal": "journal",
    "JournalRow": "_store.rows",
    "Limits": "limits",
    "Outcome": "items",
    "Rate": "limits",
    "Rows": "_store.rows",
    "State": "states",
    "Where": "where",
    "check_items": "items",
    "move_journal": "_store.moving",
    "run_batch": "runner",
    "undo_move": "_store.moving",
}
"""The module of each public name: no other one is loaded for it."""

if not _typing.TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> object:
        """Return a public name; its module is imported at the first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with _extra_named(__name__):
            module = _import_module(f"{__name__}.{_MODULES[name]}")
        return globals().setdefault(name, getattr(module, name))

    def __dir__() -> list[str]:
        """Return all names, also those that were not used yet."""
        return sorted({*globals(), *__all__})
