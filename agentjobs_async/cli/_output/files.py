"""Files that options name to be written: which may be, and how one is written whole or not at all."""

import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

from agentjobs_async import AgentJobsError, InvalidInputError
from agentjobs_async._text import one_line

_ANY_MODE: Final = 0o666  # of a new file, before the umask


def check_file(option: str, file: str, journal: Iterable[str], read: Mapping[str, str]) -> None:
    """Raise the error of a file that can't be written or must not be, before anything is opened.

    Args:
        option: The option that names it.
        file: Its path; it need not exist.
        journal: The paths of the journal's files, which need not exist either.
        read: The paths of the files that the command reads, by what they are; `-` is standard input.

    Raises:
        InvalidInputError: It is one of the journal's files or one that is read, whatever its path; or it is a
            directory, or in none that exists.
    """
    name = f"{option}: {one_line(file, 200)}"
    if any(_is_same(file, each) for each in journal):
        raise InvalidInputError(f"{name} is the journal, and would be lost: name another file")
    for what, other in read.items():
        if _would_replace(file, other):
            raise InvalidInputError(f"{name} is {what}, and would be lost: name another file")
    if Path(file).is_dir() or not Path(os.path.realpath(file)).parent.is_dir():
        raise InvalidInputError(f"{name} is no file in a directory that exists")


@contextmanager
def whole_file(file: str) -> Iterator[TextIO]:
    """Open a file for text in a block, after which it has the new text; it keeps the old one if the block raises.

    Links are followed. A file keeps its mode and its owner; a new one gets the mode that the umask leaves. Devices,
    pipes and what standard output or standard error already is are written in place. A character that UTF-8 lacks is
    escaped.

    Raises:
        AgentJobsError: The file can't be written.
    """
    try:
        with _opened(file) as stream:
            yield stream
    except OSError as error:
        defect = f"{one_line(file, 200)} can't be written: {error.strerror}"
    else:
        return
    raise AgentJobsError(defect)


@contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    found = None
    with suppress(FileNotFoundError):
        found = Path(file).stat()
    if found is not None and (written := _in_place(file, found)) is not None:
        with _text(written) as stream:
            yield stream
        return
    target = Path(os.path.realpath(file))
    beside = target.with_name(f".agentjobs-{secrets.token_hex(8)}")
    mode = _ANY_MODE if found is None else stat.S_IMODE(found.st_mode)
    try:
        with _text(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)) as stream:
            if found is not None:
                with suppress(OSError, AttributeError):  # only root may give a file away; Windows knows no owners
                    os.chown(beside, found.st_uid, found.st_gid)
                beside.chmod(mode)
            yield stream
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _text(file: str | int) -> TextIO:
    return open(file, "w", encoding="utf-8", errors="backslashreplace", newline="\n")  # noqa: PTH123 - it may be a descriptor


def _in_place(file: str, found: os.stat_result) -> str | int | None:
    """Return what to open of a file that is written in place; `None` for one that is replaced."""
    for own in (1, 2):  # replaced, the rest of the output would go to a file without a name
        with suppress(OSError):
            if os.path.samestat(found, os.fstat(own)):
                return os.dup(own)
    return None if stat.S_ISREG(found.st_mode) else file


def _would_replace(file: str, read: str) -> bool:
    """Return whether a file that is read is a regular one, and writing `file` would replace it."""
    with suppress(OSError, AttributeError, ValueError):  # one of them is missing; standard input is closed, or no file
        found = os.fstat(sys.stdin.fileno()) if read == "-" else Path(read).stat()
        return stat.S_ISREG(found.st_mode) and os.path.samestat(found, Path(file).stat())
    return False


def _is_same(one: str, other: str) -> bool:
    with suppress(OSError):
        return Path(one).samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)  # one of them is missing
