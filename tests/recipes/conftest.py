"""The recipes as modules, for the test clients of their frameworks, and the emulator that they reach."""

import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import RECIPES, SETTINGS


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulator in a thread, whose jobs end at once; the environment leads to it.

    The job of the prompt "Go" has an id that a token must carry through every framework's routes.
    """
    with Emulator.in_thread(script=JobScript(duration=0)) as emulator:
        emulator.script(JobScript(duration=0, job_id="a/b/../%2F?#é job"), prompt="Go")
        for name, value in {**SETTINGS, **emulator.environment()}.items():
            monkeypatch.setenv(name, value)
        yield emulator


@pytest.fixture
def load(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that runs a recipe as a module of its own name, as a server does."""
    assert emulator.port  # the environment leads to it: a recipe may read its settings as it is imported

    def load_recipe(name: str) -> ModuleType:
        spec = spec_from_file_location(name, RECIPES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load_recipe
