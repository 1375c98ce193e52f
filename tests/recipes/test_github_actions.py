"""The workflow for GitHub Actions: the commands of its steps, in the environment of a runner."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentjobs_async.batch import Journal
from agentjobs_async.testing import Emulator, JobScript
from tests.checkout import ROOT
from tests.docs.command import installed
from tests.docs.samples import shell
from tests.recipes.processes import RECIPES
from tests.until import until

pytestmark = pytest.mark.slow

WORKFLOW = yaml.safe_load((RECIPES / "github_actions.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["agents"]["steps"]
COMMANDS = {step["name"]: step["run"] for step in STEPS if "name" in step and "run" in step}
CHECK = COMMANDS["Check that the run before this one has handed it on"]
RUN = COMMANDS["Run the prompts"]
MARK = COMMANDS["Mark the journal as handed on"]
REPORT = COMMANDS["Report how each item stands"]
FETCHING, SAVING_BEGUN, CHECKING_BEGUN, SAVING_ENDED = [
    step["with"] for step in STEPS if "actions/cache" in step.get("uses", "")
]
(ARTIFACT,) = [step["with"]["path"] for step in STEPS if "upload-artifact" in step.get("uses", "")]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The environment of a runner on schedule; its summary is the file that this returns."""
    summary = tmp_path / "summary.md"
    for name, value in {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), "ANYWAY": ""}.items():
        monkeypatch.setenv(name, value)
    return summary


def said(summary: Path) -> list[str]:
    """Return the lines of the summary, to which the steps add theirs."""
    return summary.read_text(encoding="utf-8").splitlines()


def write_prompts(folder: Path, *pages: int) -> None:
    lines = [json.dumps({"key": f"page-{page}", "prompt": f"Fix page {page}"}) for page in pages]
    (folder / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize(
    ("mark", "anyway", "code"),
    [("ended", "", 0), ("begun", "", 1), (None, "", 1), (None, "false", 1), (None, "true", 0), ("begun", "true", 0)],
)
async def test_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str | None, anyway: str, code: int) -> None:
    """A run stops unless the newest journal was handed on; by hand it may be started anyway. It leaves its own mark."""
    path = tmp_path / "journal" / "mark"
    if mark is not None:
        path.parent.mkdir()
        path.write_text(f"{mark}\n", encoding="utf-8")
    monkeypatch.setenv("ANYWAY", anyway)
    assert (await shell(CHECK, tmp_path))[0] == code
    found = path.read_text(encoding="utf-8").strip() if path.exists() else None
    assert found == ("begun" if code == 0 else mark)


def test_hand_over() -> None:
    """The next run finds both journals that are saved, and what comes after the run follows a failure of it, too."""
    assert FETCHING["path"] == SAVING_BEGUN["path"] == CHECKING_BEGUN["path"] == SAVING_ENDED["path"] == "journal"
    assert CHECKING_BEGUN["key"] == SAVING_BEGUN["key"] != SAVING_ENDED["key"]
    assert CHECKING_BEGUN["lookup-only"] is CHECKING_BEGUN["fail-on-cache-miss"] is True
    for saved in (SAVING_BEGUN, SAVING_ENDED):
        assert saved["key"].startswith(FETCHING["restore-keys"])
        assert "github.run_id" in saved["key"]
        assert "github.run_attempt" in saved["key"]
    after = STEPS[next(number for number, step in enumerate(STEPS) if step.get("run") == RUN) + 1 :]
    assert {step["if"] for step in after} == {"always() && steps.begun.outcome == 'success'"}
    assert WORKFLOW["concurrency"] == "agents"  # without cancel-in-progress
    assert set(WORKFLOW[True]) == {"schedule", "workflow_dispatch"}  # YAML 1.1 reads `on` as true


async def test_two_nights(tmp_path: Path, runner: Path) -> None:
    """A second run sends only what is new; a failed item makes both red, and is in the summary and in the report."""
    async with Emulator(script=JobScript(duration=0, outcome="failed")) as service:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**service.environment(), "ANYWAY": "true"}.items():
                patch.setenv(name, value)
            for pages in ((2,), (2, 3)):
                write_prompts(tmp_path, *pages)
                assert (await shell(CHECK, tmp_path))[0] == 0
                assert (await shell(RUN, tmp_path))[0] == 1
                assert (await shell(MARK, tmp_path))[0] == 0
                patch.setenv("ANYWAY", "")
        for _ in range(2):
            assert (await shell(REPORT, tmp_path))[0] == 0
    assert [line.split(" | ")[:2] for line in said(runner) if "page-2" in line] == [["| page-2", "failed"]] * 2
    assert "page-2" in (tmp_path / ARTIFACT).read_text(encoding="utf-8")
    assert service.agents_started == {"Fix page 2": 1, "Fix page 3": 1}


@pytest.mark.usefixtures("runner")
async def test_a_cancelled_run(tmp_path: Path) -> None:
    """What Actions sends to a step's first process at a cancellation ends the run, whose journal can be handed on."""
    write_prompts(tmp_path, 2)
    (tmp_path / "journal").mkdir()
    step = tmp_path / "step.sh"
    step.write_text(RUN, encoding="utf-8")
    async with Emulator(script=JobScript(duration=float("inf"))) as service:
        with installed(tmp_path / "bin") as script:
            environment = {**os.environ, **service.environment(), "PYTHONPATH": str(ROOT)}
            environment["PATH"] = f"{script.parent}:{environment['PATH']}"
            process = await asyncio.create_subprocess_exec("bash", "-e", str(step), cwd=tmp_path, env=environment)
            await until(lambda: any(request.method == "GET" for request in service.requests))
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
        async with Journal.open(tmp_path / "journal" / "run.db") as journal:
            assert [row.state async for row in journal.rows()] == ["active"]
