"""What several of the test files need."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from hypothesis import settings

if TYPE_CHECKING:
    from tests.postgresql import Server

# looptime asks for the loop even of a test without one, and Python 3.11 would make one then, which nobody closes.
asyncio.set_event_loop(None)


HERE = Path(__file__).parent
SLOW = (
    *("contract", "docs", "engines", "test_readme.py", "test_structure.py"),
    *("batch/test_crashes.py", "batch/test_kills.py", "batch/test_leaving.py", "batch/test_outages.py"),
    *("batch/test_journal.py", "batch/test_runner.py", "batch/store"),
    *("cli/output/test_reports.py", "cli/output/test_screen.py", "cli/test_batches.py", "cli/test_emulation.py"),
    *("cli/test_ending.py", "cli/test_fleet.py", "cli/test_interruption.py", "cli/test_out.py", "cli/test_planning.py"),
    *("polling/test_scheduler.py", "test_start.py", "testing/test_pytest_plugin.py"),
)
"""Files and folders with tests that take a second or more, or are very many: `.ci/run fast` leaves them out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, in one place."""
    for item in items:
        if any(item.path.is_relative_to(HERE / place) for place in SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTJOBS_BASE_URL", "AGENTJOBS_API_KEY", "AGENTJOBS_PROJECT_ID", "AGENTJOBS_JOURNAL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """A certificate authority that nobody trusts by default."""
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture(scope="session")
def postgresql() -> Iterator["Server"]:
    """A running PostgreSQL."""
    from tests.postgresql import Server  # noqa: PLC0415 - most tests need none

    with Server() as server:
        yield server


@pytest.fixture
def database(postgresql: "Server") -> Iterator[str]:
    """The URL of an empty database."""
    with postgresql.database() as url:
        yield url


# No timing assertions, and the same examples on every machine: what it finds anywhere it finds everywhere.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")
