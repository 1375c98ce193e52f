import re

import pytest

import agentjobs_async
from agentjobs_async import AgentJob, AgentJobsError
from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page
from tests.test_docs import ROOT, table_below
from tests.test_errors import PUBLIC


async def test_create(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample returns the job, says so when an agent may have been started, and else returns nothing."""
    create = run_page("errors")["create"]
    await emulator.inject("500", prompt="Unlucky")
    async with emulator.session(project_id="docs") as session:
        assert isinstance(await create(session, "Fine"), AgentJob)
        assert await create(session, " ") is None
        assert capsys.readouterr().out == ""
        assert await create(session, "Unlucky") is None
    assert "look at the project docs for a job of " in capsys.readouterr().out


def test_table() -> None:
    """The table names every error of the package that has no more special ones, and nothing else."""
    public = {getattr(agentjobs_async, name) for name in agentjobs_async.__all__}  # each is imported at its first use
    kinds = {kind for kind in public if isinstance(kind, type)}
    errors = {kind for kind in kinds if issubclass(kind, AgentJobsError)}
    bases = {base for kind in errors for base in kind.__mro__[1:]}
    leaves = {kind.__name__ for kind in errors - bases}
    assert {row[0].strip("`") for row in table_below(ROOT / "docs" / "errors.md", "All errors")} == leaves


def test_public_messages() -> None:
    """The page has each text that an end user may be told beside the error whose it is, and no other text."""
    rows = table_below(ROOT / "docs" / "errors.md", "What to tell people")
    assert {row[1] for row in rows} == {told for _, told in PUBLIC if told != "It was given up."}
    kind, shown = "", set()
    for named, told in rows:
        kind = named if not named.startswith("…") else f"{kind} {named}"
        shown |= {(name, told) for name in re.findall(r"`(\w+Error)`", kind)}
    assert {(type(error).__name__, told) for error, told in PUBLIC if told != "It was given up."} - shown == set()
