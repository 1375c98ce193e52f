from pathlib import Path

from agentjobs_async.batch import Journal
from agentjobs_async.batch._workers import is_at_work, workers_of


async def test_owner_of_a_file(tmp_path: Path) -> None:
    """A file has one owner without a name; once that one has left, nobody is at work."""
    async with Journal.open(tmp_path / "run.db"):
        async with Journal.open(tmp_path / "run.db", read_only=True) as seen:
            assert await workers_of(seen) is None
    async with Journal.open(tmp_path / "run.db", read_only=True) as seen:
        assert await workers_of(seen) == []
    assert is_at_work(None)
    assert not is_at_work([])
