import subprocess
import sys

import pytest

IMPORT = "import sys; sys.modules[sys.argv[1]] = None; __import__(sys.argv[2])"


@pytest.mark.parametrize(
    ("library", "module", "extra"),
    [
        ("sqlalchemy", "agentjobs_async.batch", "batch"),
        ("filelock", "agentjobs_async.batch", "batch"),
        ("procrastinate", "agentjobs_async.engines.procrastinate", "procrastinate"),
        ("psycopg", "agentjobs_async.engines.procrastinate", "procrastinate"),
        ("opentelemetry", "agentjobs_async.tracing", "otel"),
        ("prometheus_client", "agentjobs_async.prometheus", "prometheus"),
    ],
)
def test_missing_library(library: str, module: str, extra: str) -> None:
    """Importing a module whose extra is not installed fails with one sentence that has the command to install it."""
    command = [sys.executable, "-c", IMPORT, library, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    needed = f"{module} needs the extra {extra}: pip install 'agentjobs-async[{extra}]'"
    assert done.stderr.splitlines()[-1] == f"agentjobs_async._extras.MissingExtraError: {needed}"
    assert "During handling" not in done.stderr


def test_another_missing_module() -> None:
    """A missing module of no extra keeps Python's own error."""
    command = [sys.executable, "-c", IMPORT, "agentjobs_async.batch.limits", "agentjobs_async.batch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of agentjobs_async.batch.limits")


def test_missing_signatures() -> None:
    """Without itsdangerous the room of web backends can be imported; only signed tokens need the extra."""
    program = (
        "import sys; sys.modules['itsdangerous'] = None; from agentjobs_async.web import *; SignedTokens('x' * 16)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    needed = "agentjobs_async.web.SignedTokens needs the extra web: pip install 'agentjobs-async[web]'"
    assert done.stderr.splitlines()[-1] == f"agentjobs_async._extras.MissingExtraError: {needed}"
