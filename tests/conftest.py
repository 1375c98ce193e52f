"""What several of the test files need."""

import asyncio
import ssl

import pytest
import trustme
from hypothesis import settings

# looptime asks for the loop even of a test without one, and Python 3.11 would make one then, which nobody closes.
asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTJOBS_BASE_URL", "AGENTJOBS_API_KEY", "AGENTJOBS_PROJECT_ID"):
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


# No timing assertions, and the same examples on every machine: what it finds anywhere it finds everywhere.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")
