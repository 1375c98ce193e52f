"""What a module says whose extra is not installed."""

import json
import subprocess
import sys

PROGRAM = """
import json, os, sys, traceback
import agentjobs_async

for library, work in json.loads(sys.argv[1]):
    if os.fork() == 0:
        sys.modules[library] = None
        try:
            exec(work)
        except ImportError:
            print(json.dumps([library, work, traceback.format_exc()]), flush=True)
        os._exit(0)
    os.wait()
"""


def told(*cases: tuple[str, str]) -> dict[tuple[str, str], str]:
    """Return the last line of the error of each program that fails where its library is missing."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    assert "During handling" not in done.stdout
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {(library, work): text.splitlines()[-1] for library, work, text in found}


def needing(module: str, extra: str) -> str:
    needed = f"{module} needs the extra {extra}: pip install 'agentjobs-async[{extra}]'"
    return f"agentjobs_async._extras.MissingExtraError: {needed}"


def test_missing_library() -> None:
    """Importing a module whose extra is not installed fails with one sentence that has the command to install it."""
    modules = {
        ("agentjobs_async.durable", "batch"): ("sqlalchemy",),
        ("agentjobs_async.chat", "batch"): ("sqlalchemy",),
        ("agentjobs_async.engines.procrastinate", "procrastinate"): ("procrastinate", "psycopg", "sqlalchemy"),
        ("agentjobs_async.tracing", "otel"): ("opentelemetry",),
        ("agentjobs_async.prometheus", "prometheus"): ("prometheus_client",),
    }
    wanted = {
        (library, f"import {module}"): needing(module, extra)
        for (module, extra), libraries in modules.items()
        for library in libraries
    }
    for library in ("sqlalchemy", "filelock"):
        wanted[library, "from agentjobs_async.batch import Journal"] = needing("agentjobs_async.batch", "batch")
        wanted[library, "from agentjobs_async.report import board"] = needing("agentjobs_async.report", "report")
    assert told(*wanted) == wanted


def test_another_missing_module() -> None:
    """A missing module of no extra keeps Python's own error."""
    (line,) = told(("agentjobs_async.batch.limits", "from agentjobs_async.batch import Rate")).values()
    assert line.startswith("ModuleNotFoundError: import of agentjobs_async.batch.limits")
