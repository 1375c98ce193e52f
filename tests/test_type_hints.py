"""Annotations that a program reads at run time, as web frameworks and validators do."""

import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, get_type_hints

import agentjobs_async
from tests.rows import failures

MODULES = [
    info.name
    for info in pkgutil.walk_packages(agentjobs_async.__path__, "agentjobs_async.")
    if not any(part.startswith(("_", "cli")) for part in info.name.split("."))
]
"""The public modules beside the package itself."""


def functions_of(kind: type) -> Iterator[Callable[..., Any]]:
    """Yield the methods of a class, its properties and special methods included, that this package has written."""
    for base in kind.__mro__:
        if base.__module__.startswith("agentjobs_async"):
            for name, value in vars(base).items():
                is_special = name.startswith("__") and name.endswith("__")
                plain = getattr(value, "__func__", getattr(value, "fget", value))
                if inspect.isfunction(plain) and (is_special or not name.startswith("_")):
                    yield plain


def annotated() -> dict[str, Any]:
    """Return every public class, method and function by its full name."""
    found: dict[str, Any] = {}
    for module in ("agentjobs_async", *MODULES):
        for name in getattr(import_module(module), "__all__", ()):
            value = getattr(import_module(module), name)
            if inspect.isclass(value) or inspect.isfunction(value):
                methods = functions_of(value) if inspect.isclass(value) else ()
                found |= {f"{each.__module__}.{each.__qualname__}": each for each in (value, *methods)}
    return found


def test_type_hints() -> None:
    """The types of every public class, method and function can be read at run time."""
    public = annotated()
    assert {"agentjobs_async.session.AgentJobsSession.create_job", "agentjobs_async.batch.runner.run_batch"} < set(
        public
    )
    assert failures(lambda _, value: get_type_hints(value), *public.items()) == {}


CHILD = """
import sys
from typing import get_args, get_type_hints
from agentjobs_async import JobFailedError, JobTracker
early = [name for name in sys.modules if name.startswith("agentjobs_async.learning")]
types = get_type_hints(JobFailedError.__init__)["job"], get_args(get_type_hints(JobTracker.estimate)["return"])[0]
print(early, [each.__module__ for each in types])
"""


def test_types_are_imported_when_asked_for() -> None:
    """What only annotations name is imported when a program asks for its types, and not before."""
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    assert done.stdout == "[] ['agentjobs_async.models', 'agentjobs_async.learning.estimate']\n"
