"""Fixtures and settings of all tests."""

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

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

# So does nohup with SIGHUP.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

_SLOW_FOLDERS = tuple(f"tests/{name}/" for name in ("contract", "docs", "engines"))
_SHARED_FOLDER = pytest.StashKey[Path]()
"""A folder of all processes of a test run, on which they agree before they start."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return twice the number of cores: a test often waits for a child or a database."""
    return 2 * (os.cpu_count() or 1)


def pytest_configure(config: pytest.Config) -> None:
    inputs = getattr(config, "workerinput", None)
    config.stash[_SHARED_FOLDER] = Path(inputs["shared_folder"] if inputs else mkdtemp(prefix="agentjobs-"))
    if sys.dont_write_bytecode and not inputs:
        _write_bytecode_below(config.stash[_SHARED_FOLDER])


def _write_bytecode_below(folder: Path) -> None:
    """Write bytecode below a folder where the user wants none beside the sources.

    Without any, each of hundreds of child processes would compile the package and the tests again.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder / "bytecode")
    sys.dont_write_bytecode = False


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the folder to a worker of pytest-xdist."""
    node.workerinput["shared_folder"] = str(node.config.stash[_SHARED_FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    """At the end of the whole run, stop the server and remove the folder."""
    if not hasattr(config, "workerinput"):
        folder = config.stash[_SHARED_FOLDER]
        if (folder / "shared").exists():
            from tests.postgresql import stop_shared_server  # noqa: PLC0415 - most runs need none

            stop_shared_server(folder)
        sys.dont_write_bytecode |= sys.pycache_prefix == str(folder / "bytecode")  # it would make the folder again
        rmtree(folder, ignore_errors=True)  # a child that has not ended yet may write to it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the tests of the folders above and those that need PostgreSQL.

    Any other module that takes more than 2 s of CPU is marked in its own `pytestmark`.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.nodeid.startswith(_SLOW_FOLDERS) or "postgresql" in fixtures or "own_postgresql" in fixtures:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AGENTJOBS_BASE_URL", "AGENTJOBS_API_KEY", "AGENTJOBS_PROJECT_ID", "AGENTJOBS_JOURNAL")
    for name in (*names, "GITHUB_ACTIONS"):  # these tests run on GitHub Actions, too
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file's journal is."""
    return tmp_path / "run.db"


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
def parting_seconds() -> Iterator[float]:
    """The seconds that an owner has to say that it leaves: in these tests it has more, as the machine may stall."""
    from agentjobs_async.batch._store import heartbeat  # noqa: PLC0415 - most tests need none

    with pytest.MonkeyPatch.context() as patch:
        seconds = heartbeat._PARTING_SECONDS
        patch.setattr(heartbeat, "_PARTING_SECONDS", 10.0)
        yield seconds


@pytest.fixture(scope="session")
def postgresql(pytestconfig: pytest.Config, parting_seconds: float) -> "Server":
    """A running PostgreSQL, the same for all test processes."""
    del parting_seconds
    from tests.postgresql import shared_server  # noqa: PLC0415 - most tests need none

    return shared_server(pytestconfig.stash[_SHARED_FOLDER])


@pytest.fixture
def database(postgresql: "Server") -> Iterator[str]:
    """The URL of an empty database."""
    with postgresql.database() as url:
        yield url


@pytest.fixture(scope="session")
def journal_template(postgresql: "Server") -> Iterator[str]:
    """The name of a database with the tables of a journal."""
    from agentjobs_async.batch import Journal  # noqa: PLC0415 - as above

    async def lay_out(url: str) -> None:
        async with Journal.open(url):
            """Opening makes the tables."""

    with postgresql.database() as url:
        with ThreadPoolExecutor(1) as thread:  # a loop here would take the place of the test's own
            thread.submit(asyncio.run, lay_out(url)).result()
        yield url.rpartition("/")[2].partition("?")[0]


@pytest.fixture
def laid_out(postgresql: "Server", journal_template: str) -> Iterator[str]:
    """The URL of a database with the tables of a journal, without a row."""
    with postgresql.database(journal_template) as url:
        yield url


@pytest.fixture(scope="session")
def own_postgresql(pytestconfig: pytest.Config, parting_seconds: float) -> Iterator["Server"]:
    """A PostgreSQL of this test process alone, which may be restarted."""
    del parting_seconds
    from tests.postgresql import new_server  # noqa: PLC0415 - as above

    with new_server(pytestconfig.stash[_SHARED_FOLDER]) as server:
        yield server


@pytest.fixture
def own_database(own_postgresql: "Server") -> Iterator[str]:
    """The URL of an empty database on that server."""
    with own_postgresql.database() as url:
        yield url


# No timing assertions, and the same examples on every machine: what it finds anywhere it finds everywhere.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")
