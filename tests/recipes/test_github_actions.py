"""The workflow for GitHub Actions: the command of its step, in the environment of a runner."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import shell
from tests.recipes.processes import RECIPES

pytestmark = pytest.mark.slow

WORKFLOW = yaml.safe_load((RECIPES / "github_actions.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["agents"]["steps"]
COMMAND, SUMMARY = [step["run"] for step in STEPS if "agentjobs r" in step.get("run", "")]
(ARTIFACT,) = [step["with"]["path"] for step in STEPS if "upload-artifact" in step.get("uses", "")]
(CHECK,) = [step["run"] for step in STEPS if "FOUND" in step.get("env", {})]
CACHES = {step["uses"]: step["with"] for step in STEPS if "actions/cache" in step.get("uses", "")}


@pytest.mark.parametrize(
    ("attempt", "found", "code"), [("1", "", 0), ("2", "journal-7-1", 0), ("2", "", 1), ("3", "journal-7-1", 1)]
)
async def test_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: str, found: str, code: int) -> None:
    """A run that is continued stops without the journal of the attempt before, which would start agents again."""
    for name, value in {"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": attempt, "FOUND": found}.items():
        monkeypatch.setenv(name, value)
    assert (await shell(CHECK, tmp_path))[0] == code
    saved, restored = CACHES["actions/cache/save@v4"], CACHES["actions/cache/restore@v4"]
    assert saved.items() < restored.items()
    assert saved["key"].startswith(restored["restore-keys"])


async def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed item makes the run red, and is named in the step's summary and in the report that is kept."""
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"key": "page-2", "prompt": "Fix page 2"}), encoding="utf-8")
    async with Emulator(script=JobScript(duration=0, outcome="failed")) as service:
        summary = tmp_path / "summary.md"
        runner = {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_STEP_SUMMARY": str(summary)}
        for name, value in {**service.environment(), **runner}.items():
            monkeypatch.setenv(name, value)
        assert (await shell(COMMAND, tmp_path))[0] == 1
        summary.write_text("of an earlier command\n", encoding="utf-8")
        assert (await shell(SUMMARY, tmp_path))[0] == 0
        before, *lines = summary.read_text(encoding="utf-8").splitlines()
        assert before == "of an earlier command"
        assert [line.split(" | ")[:2] for line in lines if "page-2" in line] == [["| page-2", "failed"]]
        assert "page-2" in (tmp_path / ARTIFACT).read_text(encoding="utf-8")
        again, _ = await shell(COMMAND, tmp_path)
    assert again == 1
    assert service.agents_started == {"Fix page 2": 1}
