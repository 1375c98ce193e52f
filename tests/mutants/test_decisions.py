import tomllib
from typing import Any

import pytest

from tests.checkout import ROOT
from tests.mutants.decisions import changed_lines, is_enough, survivors

RESULTS = """
    agentjobs_async.batch.limits.x_given__mutmut_3: survived
    agentjobs_async.batch.limits.x_given__mutmut_4: timeout
    agentjobs_async.batch.limits.x_given__mutmut_5: no tests
"""
SHOWN = """\
# agentjobs_async.batch.limits.x_given__mutmut_3: survived
--- agentjobs_async/batch/limits.py
+++ agentjobs_async/batch/limits.py
@@ -1,3 +1,3 @@
     kept
-    old
+    new
"""


def test_what_was_not_found() -> None:
    """The changes that no test found are named, each with the lines before and after."""
    names = ["agentjobs_async.batch.limits.x_given__mutmut_3", "agentjobs_async.batch.limits.x_given__mutmut_5"]
    assert survivors(RESULTS) == names
    assert changed_lines(SHOWN) == ["-    old", "+    new"]


@pytest.mark.parametrize(("killed", "is_good"), [(8, True), (7, False)])
def test_enough(killed: int, is_good: bool) -> None:  # noqa: FBT001 - of a table
    """Four of five changes have to be found; one that makes the tests hang is found."""
    counts = {"timeout": 0, "segfault": 0, "survived": 2, "no_tests": 0, "suspicious": 0}
    assert is_enough({**counts, "killed": killed}) is is_good
    assert is_enough({**counts, "killed": killed - 1, "timeout": 1}) is is_good


def test_the_settings_name_what_is_there() -> None:
    """Each module and each test that the settings name exists: who moves one moves its name along."""
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    named = [*settings["only_mutate"], *settings["pytest_add_cli_args_test_selection"]]
    assert [name for name in named if not (ROOT / name).is_file()] == []
