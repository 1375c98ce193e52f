"""Fixtures and settings of all tests."""

import asyncio
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from hypothesis import settings

if TYPE_CHECKING:
    from tests.postgresql import Server

# looptime asks for the loop even of a test without one, and Python 3.11 would then make one, which is never closed.
asyncio.set_event_loop(None)

# A shell starts background commands with SIGINT ignored, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SLOW_FOLDERS = [Path(__file__).parent / name for name in ("contract", "docs", "engines")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the tests of the folders above, and those that need a PostgreSQL server.

    Any other module that takes more than 2 s of CPU is marked in its own `pytestmark`.
    """
    for item in items:
        in_slow_folder = any(folder in item.path.parents for folder in _SLOW_FOLDERS)
        if in_slow_folder or "postgresql" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("AGENTJOBS_BASE_URL", "AGENTJOBS_API_KEY", "AGENTJOBS_PROJECT_ID", "AGENTJOBS_JOURNAL")
    for name in (*settings, "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):  # these tests run on GitHub Actions, too
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """A certificate authority that is not trusted by default."""
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
