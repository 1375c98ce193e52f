import re

import pytest

import agentjobs_async
import agentjobs_async.batch
import agentjobs_async.chat
import agentjobs_async.durable
import agentjobs_async.engines.procrastinate
import agentjobs_async.prometheus
import agentjobs_async.report
import agentjobs_async.testing
import agentjobs_async.tracing
import agentjobs_async.web
from tests.docs.samples import PAGES, run_page

MODULES = (
    *(agentjobs_async, agentjobs_async.batch, agentjobs_async.durable, agentjobs_async.report),
    *(agentjobs_async.engines.procrastinate, agentjobs_async.testing, agentjobs_async.web),
    agentjobs_async.chat,
    *(agentjobs_async.tracing, agentjobs_async.prometheus),
)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample shows the docstring of a method."""
    run_page("api")
    assert "wait_for_job(" in capsys.readouterr().out


def test_every_public_name() -> None:
    """The page has every public name of every public module, and no other."""
    named: dict[str, set[str]] = {}
    for module, directives in re.findall(
        r"currentmodule:: (\S+)\n(.*?)^```$", PAGES["api"].read_text(), re.DOTALL | re.MULTILINE
    ):
        named.setdefault(module, set()).update(re.findall(r"^\.\. auto\w+:: (\w+)$", directives, re.MULTILINE))
    assert named == {module.__name__: set(module.__all__) - {"__version__"} for module in MODULES}
