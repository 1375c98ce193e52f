from datetime import UTC, datetime

from agentjobs_async import AgentJob
from agentjobs_async.batch import BatchResult, JournalRow, Outcome, State
from agentjobs_async.cli._output.results import result_document, run_result
from agentjobs_async.report.items import document


def test_links_are_those_of_every_file() -> None:
    """A link that could end the quotes of a page's attribute is in no file, and in no event."""
    link = "https://code.example/pull/1?title='x'"
    row = JournalRow("k", "p", "docs", State.COMPLETED, "job-1", link, None, datetime.now(UTC), 1)
    job = AgentJob("job-1", "docs", "completed", pr_link=link)
    result = BatchResult(row.item, Outcome.COMPLETED, job, row=row)
    assert result_document(run_result(result))["pr_link"] is document(row)["pr_link"] is None
