from collections.abc import Iterator

import pytest

from tests.cli.stage import EmulatorThread


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorThread]:
    """An emulated service that the environment leads to; its jobs have ended when they are read first."""
    with EmulatorThread() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running
