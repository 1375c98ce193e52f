import io
import os
import re
from pathlib import Path

import pytest

from agentjobs_async.cli._output.streams import guarded, leave
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread

FULL = Path("/dev/full")


def test_reader_leaves(service: EmulatorThread) -> None:
    """When the reader leaves, as `head` does, a run ends with 141, and says how to go on with what it created."""
    service.live(prompt="a", duration=3600)
    with Child("run", "--yes", "a", "b", env=service.environment, fresh=True) as child:
        child.close_stdout()
        assert child.ended() == 141
    assert "Resume with this" in child.stderr
    assert re.search(r" resume \S+/run-\S+\.db ", child.stderr)


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
def test_full_disk(service: EmulatorThread) -> None:
    """Output that can't be written stops a run, which says so, and how to go on."""
    service.live(duration=3600)
    with Child("run", "a", env=service.environment, stdout=os.open(FULL, os.O_WRONLY), fresh=True) as child:
        assert child.ended() == 4
    assert child.stderr.startswith("Error: the output can't be written: No space left on device\n")
    assert re.search(r" resume \S+/run-\S+\.db [^\n]*\n$", child.stderr)


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
def test_token_is_not_lost(service: EmulatorThread) -> None:
    """The token of a job that was created is told on standard error when standard output fails."""
    with Child("create", "a", env=service.environment, stdout=os.open(FULL, os.O_WRONLY), fresh=True) as child:
        assert child.ended() == 4
    assert child.stderr.endswith("The job was created: docs/job_000001\n")


def test_closed_stream() -> None:
    """A stream that the process was started without takes everything."""
    stream = guarded(None)
    assert stream.write("text") == 4
    stream.flush()


def test_failure_is_told_once() -> None:
    """After its first failure a stream is silent, and the failure was told once."""
    reader, writer = os.pipe()
    os.close(reader)
    failures: list[OSError] = []
    with open(writer, "w", encoding="ascii") as pipe:  # noqa: PTH123 - a descriptor, not a path
        stream = guarded(pipe, failures.append)
        assert stream.write("é") == 1
        stream.flush()
        stream.flush()
        assert stream.write("more") == 4
        assert not stream.isatty()
        assert stream.encoding == "ascii"
        assert stream.fileno() == writer
    assert [type(failure) for failure in failures] == [BrokenPipeError]


def test_failure_without_descriptor() -> None:
    """A stream without a descriptor may fail as well."""

    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(text)

    failures: list[OSError] = []
    assert guarded(Broken(), failures.append).write("text") == 4
    assert len(failures) == 1


def test_leave(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Leaving writes what is buffered, and ends the process with the code."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr("sys.stderr", None)
    leave(130)
    assert codes == [130]
    assert capsys.readouterr().out == ""


def test_encoding_without_the_character(service: EmulatorThread) -> None:
    """What the output's encoding can't say is escaped."""
    env = service.environment | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with Child("run", "Größe", env=env, fresh=True) as child:
        assert child.ended() == 0
    assert "created: Gr\\xf6\\xdfe\n" in child.stdout
