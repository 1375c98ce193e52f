import os
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentjobs_async import InvalidInputError, KeyRequested, NotSentError
from agentjobs_async.cli._input.key_file import KeyFile
from agentjobs_async.cli.hooks import KeyNotices

ADDRESS = "https://api.example.com"


def test_a_file_that_changes(tmp_path: Path) -> None:
    """The first call returns the key that was read at the start, and each later one what the file holds then."""
    path = tmp_path / "key"
    path.write_text("first-key-1")
    setting = KeyFile(str(path)).setting(ADDRESS)
    assert callable(setting)
    path.write_text("second-key-2\n")
    assert [setting(), setting()] == ["first-key-1", "second-key-2"]
    path.write_text("")
    with pytest.raises(InvalidInputError, match="is empty"):
        setting()
    path.write_text("third-key-3")
    assert setting() == "third-key-3"


def test_a_pipe(tmp_path: Path) -> None:
    """What can't be read twice keeps its first key: it is not waited for again."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(KeyFile, str(path))
        path.write_text("first-key-1")
        setting = reading.result().setting(ADDRESS)
    assert callable(setting)
    assert [setting(), setting()] == ["first-key-1"] * 2


def test_a_key_in_the_address(tmp_path: Path) -> None:
    """Where the address holds the key, it is known, and so masked, from the start."""
    path = tmp_path / "key"
    path.write_text("first-key-1")
    assert KeyFile(str(path)).setting(f"{ADDRESS}/first-key-1/v2") == "first-key-1"


def test_no_key_in_a_traceback(tmp_path: Path) -> None:
    """No frame of the error of a bad file shows what is in it."""
    path = tmp_path / "key"
    for content in (b"secret key", b"Bearer secret-key", b"secret\xff"):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError) as caught:
            KeyFile(str(path))
        frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack[1:]
        assert len(frames) >= 2
        assert "secret" not in str([frame.locals for frame in frames])
        assert caught.value.__context__ is None


def test_notices(tmp_path: Path) -> None:
    """Each change is one line; the same failure is not told twice in a row."""
    path, lines = tmp_path / "key", list[str]()
    path.write_text("first-key-1")
    file = KeyFile(str(path))
    notices = KeyNotices(file, lines.append)
    for event in (
        *[KeyRequested(changed=True, error=None)] * 2,
        *[KeyRequested(changed=False, error=None)] * 2,
        *[KeyRequested(changed=False, error=NotSentError("nothing was sent: no key", "key"))] * 2,
    ):
        notices(event)
    assert lines == [
        *[f"The service refused the API key; {path} has another one now."] * 2,
        f"The service refused the API key; {path} has no other one.",
        "The service refused the API key; nothing was sent: no key.",
    ]
