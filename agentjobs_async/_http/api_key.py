"""The API key: checked, kept where no repr, pickle or `asdict` finds it, and masked where a server echoes it."""

import re
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from typing import Final, NoReturn

from agentjobs_async.errors import InvalidInputError

MASK: Final = "***"
_MIN_MASKED_LENGTH: Final = 8  # characters; a shorter key would be found in ordinary words
_MAX_ESCAPED_LENGTH: Final = 256  # characters; for longer keys, a pattern of escaped base64 compiles too slowly
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


class ApiKey:
    """A key that is readable only as the Authorization header of one request.

    The key is held in a closure, so that neither `vars`, nor `asdict`, nor a traceback with locals shows it.
    Keys under 8 characters are not masked: they would be found in ordinary words.

    Raises:
        InvalidInputError: The key is not a string of visible ASCII without spaces, or begins with `Bearer`. The message
            never quotes it.
    """

    __slots__ = ("_masker", "_reveal")

    def __init__(self, key: object) -> None:
        text = _checked(key)
        self._reveal: Callable[[], str] = lambda: text
        self._masker = _Masker(text) if len(text) >= _MIN_MASKED_LENGTH else None

    def authorization(self) -> str:
        """Return the value of the Authorization header."""
        return f"Bearer {self._reveal()}"

    def mask(self, text: str) -> str:
        """Return `text` with the key, plain, percent-encoded, JSON-escaped or in base64, replaced by `***`."""
        return text if self._masker is None else self._masker.mask(text)

    def may_be_in(self, body: bytes) -> bool:
        """Return whether `body` may hold the key in one of these forms. The test is cheap; only `False` is certain."""
        return self._masker is not None and self._masker.may_be_in(body)

    def __repr__(self) -> str:
        return f"ApiKey({MASK})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an API key is never pickled or copied; pass the key itself to the new session")


class _Masker:
    """The forms of one key. The pattern is held in a closure as well: its repr would quote the key."""

    __slots__ = ("_forms", "_substitute")

    def __init__(self, key: str) -> None:
        encoded = _base64_forms(key)
        # An escaped form needs a backslash or a percent sign, so that these two stand for all escaped forms.
        needles = (b"\\", b"%", key.encode(), *(form.encode() for form in encoded))

        @cache
        def pattern() -> re.Pattern[str]:
            """Compile the pattern when it is first needed: for a long key that takes a while."""
            escaped = encoded if len(key) <= _MAX_ESCAPED_LENGTH else ()
            plain = () if escaped else map(re.escape, encoded)
            # The lookbehind tries a run of backslashes from its start only: in hostile text, the time stays linear.
            forms = "|".join(["".join(map(_any_form_of, form)) for form in (key, *escaped)] + list(plain))
            return re.compile(rf"(?<!\\)(?:{forms})")

        self._substitute: Callable[[str], str] = lambda text: pattern().sub(MASK, text)
        self._forms: Callable[[], tuple[bytes, ...]] = lambda: needles

    def mask(self, text: str) -> str:
        return self._substitute(text)

    def may_be_in(self, body: bytes) -> bool:
        for form in self._forms():  # noqa: SIM110 - run for every response, and any() takes three times as long
            if form in body:
                return True
        return False


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


def _any_form_of(character: str) -> str:
    """Return a pattern of one character: plain, percent-encoded (once or repeatedly), or escaped as in JSON."""
    if character == "%":
        return r"\\*+(?:u0025|%(?:25)*)"
    code = f"(?i:{ord(character):02x})"
    if character == "\\":
        return rf"(?:\\*+(?:u00{code}|%(?:25)*+{code})|\\)"
    return rf"\\*+(?:u00{code}|%(?:25)*+{code}|{re.escape(character)})"


def _base64_forms(key: str) -> tuple[str, ...]:
    """Return the base64 forms of the key inside a longer text: at each of the three byte offsets, in both alphabets."""
    raw = key.encode()
    forms: dict[str, None] = {}
    for offset, first in ((0, 0), (1, 2), (2, 3)):  # the characters before `first` depend on what precedes the key
        inner = b64encode(bytes(offset) + raw).decode()[first : (offset + len(raw)) * 4 // 3]
        forms |= {inner: None, inner.replace("+", "-").replace("/", "_"): None}
    return tuple(forms)
