import json
from itertools import pairwise
from pathlib import Path

from tests.report.stage import report_of, run_some


async def test_trace(tmp_path: Path) -> None:
    """Each item that was sent is a bar in the process of its project, and no two bars of a lane overlap."""
    await run_some(tmp_path / "run.db", max_active=1)
    events = json.loads(await report_of(tmp_path / "run.db", format="trace"))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert set(names.values()) == {"billing", "docs"}
    bars = [event for event in events if event["ph"] == "X" and event["name"] != "create"]
    assert sorted(bar["name"] for bar in bars) == [f"page-{number}" for number in range(1, 9)]
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for bar in bars:
        lanes.setdefault((bar["pid"], bar["tid"]), []).append((bar["ts"], bar["ts"] + bar["dur"]))
    for lane in lanes.values():
        assert all(before[1] <= after[0] + 1 for before, after in pairwise(lane))
    assert len(lanes) < len(bars)
    assert {bar["cat"] for bar in bars} == {"completed", "failed", "unknown", "rejected", "archived"}
