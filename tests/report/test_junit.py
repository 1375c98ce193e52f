from http import HTTPStatus
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.report.stage import fail_hostile, report_of, run_some


async def test_cases(tmp_path: Path) -> None:
    """Each item is a case: failed, an error where it is unknown, skipped where it has not ended."""
    await run_some(tmp_path / "run.db")
    root = ET.fromstring(await report_of(tmp_path / "run.db", format="junit"))  # noqa: S314 - our own document
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "9",
        "failures": "3",
        "errors": "1",
        "skipped": "1",
    }
    cases = {
        case.get("name"): [child.tag for child in case if child.tag != "system-out"] for case in root.iter("testcase")
    }
    assert cases["page-1"] == []
    assert cases["page-3"] == cases["page-6"] == cases["page-7"] == ["failure"]
    said = [child.get("message") for case in root.iter("testcase") for child in case if child.tag == "failure"]
    assert [words.partition(" (job_")[0] for words in map(str, said)] == [
        "the agent failed",
        f"HTTP 422: {HTTPStatus(422).phrase}",
        "the job was archived",
    ]
    assert (cases["page-4"], cases["page-9"]) == (["error"], ["skipped"])


async def test_hostile_items(tmp_path: Path) -> None:
    """What XML forbids is escaped, and markup is text."""
    await fail_hostile(tmp_path / "run.db")
    root = ET.fromstring(await report_of(tmp_path / "run.db", format="junit"))  # noqa: S314 - our own document
    assert {child.tag for case in root.iter("testcase") for child in case} == {"failure", "system-out"}
    assert "</template><script>alert(1)</script>" in [found.text for found in root.iter("system-out")]
