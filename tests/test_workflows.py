"""The workflows of the repository: what they call exists, and nothing is left out."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkout import ROOT, needs

pytestmark = [needs(".github"), needs(".ci")]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def workflows() -> dict[str, dict[str, Any]]:
    """Return each workflow by its file's stem."""
    files = sorted((ROOT / ".github" / "workflows").iterdir())
    return {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


def commands(job: dict[str, Any]) -> list[str]:
    """Return the commands of a job's steps, once for each set of values in its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    sets = matrix.get("include") or [{name: value} for name, values in matrix.items() for value in values] or [{}]
    runs = [step["run"] for step in job.get("steps", ()) if "run" in step]
    return [filled(run, each) for each in sets for run in runs]


def filled(command: str, values: dict[str, str]) -> str:
    """Return a command with the values of a matrix in their places."""
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name: values[name[1]], command)


def in_script(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the shell after the functions of `.ci/run`."""
    functions = (ROOT / ".ci" / "run").read_text(encoding="utf-8").partition("\ncase ${1:-gate} in")[0]
    script = functions.replace('cd "$(dirname "$0")/.."', f"cd '{ROOT}'") + f"\n{command}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)  # noqa: S603, S607 - our own script


def parts(script: str) -> set[str]:
    """Return the names of the parts that `.ci/run` knows."""
    branches = script.partition("\ncase ${1:-gate} in")[2]
    return {name for names in re.findall(r"^    ([a-z |]+)\) ", branches, re.MULTILINE) for name in names.split(" | ")}


def test_parts() -> None:
    """Each part of `.ci/run` that a workflow or template calls is one that the script knows."""
    known = parts((ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    run = [command for each in workflows().values() for job in each["jobs"].values() for command in commands(job)]
    called = {name for command in run for name in re.findall(r"\.ci/run ?(\S*)", command)}
    assert called >= {"whole", "lint", "types", "docs", "lowest", "coverage", "readme", "package", "search"}
    assert called - known == set()


def test_pythons() -> None:
    """All tests run on exactly the Pythons that the classifiers name."""
    classifiers = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert workflows()["ci"]["jobs"]["tests"]["strategy"]["matrix"]["python"] == classifiers


def test_permissions() -> None:
    """No workflow may write more than it needs, and no job runs without end."""
    for each in workflows().values():
        assert each["permissions"] == {"contents": "read"}
        for job in each["jobs"].values():
            assert "timeout-minutes" in job or "uses" in job
    granted = {
        name: job["permissions"]
        for each in workflows().values()
        for name, job in each["jobs"].items()
        if "permissions" in job
    }
    assert granted == {"search": {"contents": "read", "issues": "write"}, "publish": {"id-token": "write"}}


def test_publishing() -> None:
    """Nothing is published that has not passed all parts of CI, and the checks of a release with its tag."""
    jobs = workflows()["release"]["jobs"]
    assert set(jobs["publish"]["needs"]) == {"ci", "package"}
    assert '.ci/run package "$GITHUB_REF_NAME"' in commands(jobs["package"])
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"


@pytest.mark.parametrize("name", ["defect", "feature"])
def test_forms(name: str) -> None:
    """Each form asks for something, and no two of its answers have one name."""
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
    names = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert sorted(set(names)) == sorted(names)
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_every_extra_is_installed_alone() -> None:
    """The check of a release installs each extra of pyproject.toml alone, and the package without any."""
    done = in_script(f"with_extra() {{ echo \"[$3]\"; }}\nwith_each_extra '{sys.executable}' wheel")
    assert (done.stdout.split(), done.stderr) == (["[]", *(f"[{extra}]" for extra in EXTRAS)], "")


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("v1.2.3", ""),
        ("v1.2.4", "the tag v1.2.4 is not of agentjobs_async-1.2.3-py3-none-any.whl: see _version.py"),
        ("v1.2", "the tag v1.2 is not of agentjobs_async-1.2.3-py3-none-any.whl: see _version.py"),
    ],
)
def test_tag(tag: str, said: str, tmp_path: Path) -> None:
    """A tag is of the version that was built, or the release stops."""
    (tmp_path / "CHANGELOG.md").write_text("## [1.2.3] - 2030-01-01\n", encoding="utf-8")
    done = in_script(f"cd '{tmp_path}'\nfits {tag} dist/agentjobs_async-1.2.3-py3-none-any.whl")
    assert (done.returncode, done.stderr.strip()) == (int(bool(said)), said)


def test_changelog(tmp_path: Path) -> None:
    """A release stops without a section of the changelog."""
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n", encoding="utf-8")
    done = in_script(f"cd '{tmp_path}'\nfits v1.2.3 dist/agentjobs_async-1.2.3-py3-none-any.whl")
    assert (done.returncode, done.stderr.strip()) == (1, "CHANGELOG.md has no section [1.2.3]")


ALONE = """
import runpy, sys
script, absent = sys.argv[1:3]
sys.modules[absent] = None
sys.argv[1:] = sys.argv[3:]
runpy.run_path(script, run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "absent", "code"),
    [
        ("otel", "sqlalchemy", 0),
        ("otel", "opentelemetry.trace", 1),  # not by its requirement: by what needs it
        ("batch", "sqlalchemy", 1),
        ("report", "jinja2", 1),
        ("other", "nothing", 1),
    ],
)
def test_alone(extra: str, absent: str, code: int) -> None:
    """An extra is whole where all that it names is there, whatever other extras lack."""
    command = [sys.executable, "-c", ALONE, str(ROOT / ".ci" / "alone.py"), absent, extra]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own script
    assert done.returncode == code, done.stderr
    assert ("needs batch" in done.stdout) == (absent == "sqlalchemy" and not code)
