"""Programs that run as process 1 of a PID namespace of their own, as in a container."""

import subprocess
from collections.abc import Sequence
from functools import cache

import pytest

_WAYS = (
    ("unshare", "--pid", "--fork", "--kill-child"),
    ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"),
)
"""As root, and as anybody else where the system lets everybody have namespaces."""


@cache
def _way() -> Sequence[str] | None:
    for way in _WAYS:
        try:
            if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:  # noqa: S603 - from this list
                return way
        except FileNotFoundError:
            return None
    return None


def run_first(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as process 1; skip the test where the machine permits no PID namespace."""
    way = _way()
    if way is None:
        pytest.skip("this machine lets nobody make a PID namespace, so that nothing can run as process 1")
    return subprocess.run([*way, *command], capture_output=True, text=True, check=False, env=env, timeout=60)  # noqa: S603 - the test's own program
