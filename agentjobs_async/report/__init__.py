"""Reports of a journal: one page to look at, and files for other programs.

Needs the extra `batch`; the page needs `report`. `columns` and `figures` know the rows, each format has a module of its
own, and `assets` holds the page's template, style and scripts.
"""

from agentjobs_async._extras import extra_named

with extra_named("agentjobs_async.report", "report"):
    from agentjobs_async.report.serving import board, board_token
    from agentjobs_async.report.writing import write_report

__all__ = ["board", "board_token", "write_report"]
