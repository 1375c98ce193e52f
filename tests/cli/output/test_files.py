import os
import shlex
import stat
from pathlib import Path

import pytest

from agentjobs_async import AgentJobsError
from agentjobs_async.__main__ import main
from agentjobs_async.cli._output.files import whole_file
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread
from tests.rows import failures

WRITING = ("report run.db --out", "export run.db --out", "resume run.db --report")


@pytest.fixture
def folder(service: EmulatorThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the journal `run.db`."""
    del service
    monkeypatch.chdir(tmp_path)
    assert main(["run", "Document it", "--journal", "run.db"]) == 0
    return tmp_path


def test_never_the_journal(folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """No option that names a file to write accepts the journal, by any path, nor one that is about to be made."""
    (folder / "alias").symlink_to(folder)
    (folder / "link").symlink_to("run.db")
    (folder / "hard").hardlink_to("run.db")
    (folder / "soon").symlink_to("new.db")
    monkeypatch.setenv("AGENTJOBS_JOURNAL", "link")
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}

    def check(command: str) -> None:
        capsys.readouterr()
        assert main(shlex.split(command)) == 2
        assert "is the journal, and would be lost" in " ".join(capsys.readouterr().err.split())
        assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before

    paths = (
        "run.db",
        f"../{folder.name}/run.db",
        str(folder / "run.db"),
        "alias/run.db",
        "link",
        "hard",
        "run.db-wal",
    )
    named = (f"{command} {path}" for command in WRITING for path in paths)
    unmade = (f"run x --journal new.db --report {path}" for path in ("soon", "new.db"))
    assert failures(check, *named, *unmade, "export --out run.db", "report link --out run.db.lock") == {}


def test_never_the_input(folder: Path, service: EmulatorThread, capsys: Captured) -> None:
    """No report replaces the file of the prompts, by any path, on standard input too; nothing is sent."""
    (folder / "prompts").write_text("one\n")
    (folder / "alias").symlink_to(folder)
    (folder / "link").symlink_to("prompts")
    (folder / "hard").hardlink_to("prompts")
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    requests = service.emulator.requests

    def check(read: str, path: str, stdin: str | None = None) -> None:
        descriptor = None if stdin is None else os.open(stdin, os.O_RDONLY)
        with Child("run", "--file", read, "--report", path, env=service.environment, stdin=descriptor) as child:
            assert child.ended() == 2
        if descriptor is not None:
            os.close(descriptor)
        assert child.stderr == f"Error: --report: {path} is the input, and would be lost: name another file\n"
        assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before

    paths = ("prompts", f"../{folder.name}/prompts", str(folder / "prompts"), "alias/prompts", "link", "hard")
    assert failures(lambda path: check("prompts", path), *paths) == {}
    assert failures(lambda read: check(read, "prompts"), "link", "hard") == {}
    assert failures(lambda read: check(read, "link", "prompts"), "-", "/dev/stdin") == {}
    (folder / "key").write_text("secret-key")
    assert main(["run", "one", "two", "--key-file", "key", "--report", "../" + folder.name + "/key"]) == 2
    assert "is the file of the API key, and would be lost" in capsys.readouterr().err
    assert (folder / "key").read_text() == "secret-key"
    assert service.emulator.requests == requests
    assert main(["run", "--file", "prompts", "--report", "other.csv"]) == 0
    assert capsys.readouterr().err.endswith("The report is in other.csv.\n")


def test_a_file_is_replaced_whole(folder: Path) -> None:
    """A file and the link to it stay what they are, with their mode; a new one has the mode that the umask leaves."""
    umask = os.umask(0o027)

    def check(command: str) -> None:
        (folder / "old").write_text("old")
        (folder / "old").chmod(0o604)
        for name in ("old", "link", "new"):
            assert main([*command.split(), name]) == 0
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert (modes["old"], modes["new"], (folder / "link").is_symlink()) == (0o604, 0o640, True)
        assert len((folder / "old").read_text()) > len("old")
        (folder / "new").unlink()

    (folder / "link").symlink_to("old")
    try:
        assert failures(check, *WRITING) == {}
    finally:
        os.umask(umask)
    assert list(folder.glob(".*")) == []


def test_what_fails_changes_nothing(tmp_path: Path) -> None:
    """A file whose text can't be made or written whole has the earlier one; what UTF-8 lacks is escaped."""
    (file := tmp_path / "file").write_text("old")
    with pytest.raises(ZeroDivisionError), whole_file(str(file)) as stream:
        stream.write(f"{1 // 0}")
    with pytest.raises(AgentJobsError, match="missing/file can't be written: No such"), whole_file("missing/file"):
        pass
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
    with whole_file(str(file)) as stream:
        stream.write("\udcff\r\n")
    assert file.read_bytes() == b"\\udcff\r\n"


def test_what_is_written_in_place(folder: Path) -> None:
    """A pipe, a device, and the file that standard output is are written as they are."""
    with Child("export", "run.db", "--out", "/dev/stdout") as child:
        assert child.ended() == 0
    assert child.stdout.startswith("number,key,state")
    assert main(["export", "run.db", "--out", "/dev/null"]) == 0
    assert not Path("/dev/null").is_file()
    (folder / "old").write_text("old\n")
    with Child("export", "run.db", "--out", "/dev/stdout", stdout=os.open("old", os.O_WRONLY | os.O_APPEND)) as child:
        assert child.ended() == 0
    assert (folder / "old").read_text().startswith("old\nnumber,key,state")
