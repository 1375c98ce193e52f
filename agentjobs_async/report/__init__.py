"""Reports of a journal: one page to look at, and files for other programs.

Needs the extra `batch`; the page needs `report`. `items` names the columns of an item, `columns` and `figures` know the
rows, each format has a module of its own, and `assets` holds the page's template, style and scripts. A journal is
loaded with the first name that needs one.
"""

import typing as _typing  # private, as in the package above
from importlib import import_module as _import_module

from agentjobs_async._extras import extra_named as _extra_named

if _typing.TYPE_CHECKING:
    from agentjobs_async.report.serving import board, board_token
    from agentjobs_async.report.writing import write_report

__all__ = ["board", "board_token", "write_report"]

_MODULES: _typing.Final = {"board": "serving", "board_token": "serving", "write_report": "writing"}
"""The module of each public name."""

if not _typing.TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> object:
        """Return a public name; its module is imported at the first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with _extra_named(__name__, "report"):
            module = _import_module(f"{__name__}.{_MODULES[name]}")
        return globals().setdefault(name, getattr(module, name))

    def __dir__() -> list[str]:
        """Return all names, also those that were not used yet."""
        return sorted({*globals(), *__all__})
