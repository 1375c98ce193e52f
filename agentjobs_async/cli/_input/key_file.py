"""The file of the API key: it is read at the start, and again where the service refuses its key."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from agentjobs_async import InvalidInputError
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._text import one_line

_LONGEST_KEY_FILE: Final = 65_536  # bytes: the file may be a device without end
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


class KeyFile:
    """A file of an API key, which may be replaced while a command runs.

    A pipe or a device, which can't be read twice, keeps its first key.

    Args:
        path: Where it is.

    Attributes:
        defect: Why the last reading found no key; `None` where it found one.

    Raises:
        InvalidInputError: It can't be read, is no text, is empty, or holds no key. The message never quotes it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.defect: str | None = None
        self._may_change = Path(path).is_file()
        self._kept: Callable[[], str] | None = _held(self._read())

    def setting(self, address: str) -> str | Callable[[], str]:
        """Return `api_key` of the session for an address: a callable that reads the file anew from its second call on.

        An address that holds the key itself, as a gateway may want it, stays masked: there, it is the key as it is.
        """
        key = self._key()
        masker = ApiKey(key).masker
        return key if masker is not None and masker.mask(address) != address else self._next_key

    def _next_key(self) -> str:
        found = self._key()
        if self._may_change:
            self._kept = None
        return found

    def _key(self) -> str:
        return self._read() if self._kept is None else self._kept()

    def _read(self) -> str:
        found = _key_in(self.path)
        self.defect = found.message if isinstance(found, InvalidInputError) else None
        if isinstance(found, InvalidInputError):
            raise found
        return found

    def warning(self) -> str | None:
        """Return that others can read the file, in words; `None` where they can't."""
        # A file that can't be looked at can't be read either, and that is said where it is read.
        with suppress(OSError):
            mode = Path(self.path).stat().st_mode
            if os.name == "posix" and mode & _READABLE_BY_OTHERS:
                name = one_line(self.path)
                return f"--key-file: others can read {name} (mode {stat.S_IMODE(mode):04o}): use chmod 600 on it"
        return None


def _held(key: str) -> Callable[[], str]:
    """Return a key in a closure, so that no traceback with locals shows it."""
    return lambda: key


def _key_in(path: str) -> str | InvalidInputError:
    """Return the key in a file, without the white space around it; or the error, without frames that hold the key."""
    name = one_line(path)
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(_LONGEST_KEY_FILE).decode().strip()
    except OSError as error:
        return InvalidInputError(f"--key-file: {name} can't be read: {error.strerror}")
    except UnicodeDecodeError:
        return InvalidInputError(f"--key-file: {name} is no text file")
    if not text:
        return InvalidInputError(f"--key-file: {name} is empty")
    try:
        ApiKey(text)
    except InvalidInputError as error:
        return InvalidInputError(f"--key-file: {name} holds no key: {error.message}")
    return text
