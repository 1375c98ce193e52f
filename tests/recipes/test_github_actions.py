"""The workflow for GitHub Actions: the command of its step, in the environment of a runner."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import RECIPES

pytestmark = pytest.mark.slow

WORKFLOW = yaml.safe_load((RECIPES / "github_actions.yml").read_text())
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["agents"]["steps"]
(COMMAND,) = [step["run"] for step in STEPS if step.get("run", "").startswith("agentjobs")]


async def run_step(folder: Path, service: Emulator) -> tuple[int, str]:
    """Run the step as a runner does; return its exit code and what it wrote."""
    variables = {
        "GITHUB_ACTIONS": "true",
        "CI": "true",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    }
    process = await asyncio.create_subprocess_exec(
        *("bash", "-e", "-c", COMMAND),
        cwd=folder,
        env={**os.environ, **service.environment(), **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_run(tmp_path: Path) -> None:
    """A failed item makes the run red, is named in the summary and as an error, and the report is there to be kept."""
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"key": "page-2", "prompt": "Fix page 2"}))
    async with Emulator(script=JobScript(duration=0, outcome="failed")) as service:
        code, output = await run_step(tmp_path, service)
        assert code == 1
        assert output.count("::error") == 1
        assert "page-2" in (tmp_path / "summary.md").read_text()
        (artifact,) = [step["with"]["path"] for step in STEPS if "upload-artifact" in step.get("uses", "")]
        assert "page-2" in (tmp_path / artifact).read_text()
        again, _ = await run_step(tmp_path, service)
    assert again == 1
    assert service.agents_started == {"Fix page 2": 1}
