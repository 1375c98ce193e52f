"""The API key: checked, kept where no repr, pickle or `asdict` finds it, and readable only as the value of a header."""

import re
from collections.abc import Callable
from typing import Final, NoReturn

from agentjobs_async._http.masking import MASK, Masker
from agentjobs_async.errors import InvalidInputError

_MIN_MASKED_LENGTH: Final = 8  # characters; a shorter key would be found in ordinary words
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


class ApiKey:
    """A key that is readable only as the value of a header.

    The key is held in a closure, so that neither `vars`, nor `asdict`, nor a traceback with locals shows it.
    Keys under 8 characters are not masked: they would be found in ordinary words.

    Attributes:
        masker: Replaces the key in texts; `None` for a short key.

    Raises:
        InvalidInputError: The key is not a string of visible ASCII without spaces, or begins with `Bearer`. The message
            never quotes it.
    """

    __slots__ = ("__weakref__", "_reveal", "masker")

    def __init__(self, key: object) -> None:
        text = _checked(key)
        self._reveal: Callable[[], str] = lambda: text
        self.masker = Masker(text) if len(text) >= _MIN_MASKED_LENGTH else None

    def formatted(self, key_format: str) -> str:
        """Return the value of the header, in which the key stands for `{key}`."""
        return key_format.replace("{key}", self._reveal())

    def is_same(self, other: "ApiKey") -> bool:
        """Return whether another object holds the same key."""
        return self._reveal() == other._reveal()  # noqa: SLF001 - of the same class

    def digest_of(self, message: bytes) -> str:
        """Return the HMAC-SHA256 of a message under the key, as hexadecimal digits. It tells nothing of the key."""
        from hmac import digest  # noqa: PLC0415 - only where a service honours idempotency keys

        return digest(self._reveal().encode(), message, "sha256").hex()

    def __repr__(self) -> str:
        return f"ApiKey({MASK})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an API key is never pickled or copied; pass the key itself to the new session")


def _checked(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInputError(f"api_key must be a string, not {type(key).__name__}")
    if not key:
        raise InvalidInputError("api_key must be visible ASCII: it is empty")
    if key[:7].lower() == "bearer ":
        raise InvalidInputError("api_key must be the bare key: leave out the word Bearer; the client adds it")
    if not _VISIBLE.fullmatch(key):
        raise InvalidInputError(
            "api_key must be visible ASCII without spaces or line breaks (a stray one often comes from reading a file:"
            " strip it)"
        )
    return key
