"""Secrets are masked in every text that comes from outside: plain, percent-encoded, JSON-escaped and in base64."""

import re
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from typing import Final

MASK: Final = "***"
_MIN_ENCODED_LENGTH: Final = 4  # characters of base64; fewer, those of a very short secret, are found in any text
_MAX_ESCAPED_LENGTH: Final = 256  # characters; for longer secrets, a pattern of escaped base64 compiles too slowly


class Masker:
    """The forms of one secret. The pattern is held in a closure: its repr would quote the secret."""

    __slots__ = ("_forms", "_substitute")

    def __init__(self, secret: str) -> None:
        encoded = _base64_forms(secret)
        # An escaped form needs a backslash or a percent sign, so that these two stand for all escaped forms.
        needles = (b"\\", b"%", secret.encode(), *(form.encode() for form in encoded))

        @cache
        def pattern() -> re.Pattern[str]:
            """Compile the pattern when it is first needed: for a long secret that takes a while."""
            escaped = encoded if len(secret) <= _MAX_ESCAPED_LENGTH else ()
            plain = () if escaped else map(re.escape, encoded)
            # The lookbehind tries a run of backslashes from its start only: in hostile text, the time stays linear.
            forms = "|".join(["".join(map(_any_form_of, form)) for form in (secret, *escaped)] + list(plain))
            return re.compile(rf"(?<!\\)(?:{forms})")

        self._substitute: Callable[[str], str] = lambda text: pattern().sub(MASK, text)
        self._forms: Callable[[], tuple[bytes, ...]] = lambda: needles

    def mask(self, text: str) -> str:
        """Return `text` with the secret, in whatever form, replaced by `***`."""
        return self._substitute(text)

    def may_be_in(self, body: bytes) -> bool:
        """Return whether `body` may hold the secret in one of these forms. It is cheap; only `False` is certain."""
        for form in self._forms():  # noqa: SIM110 - run for every response, and any() takes three times as long
            if form in body:
                return True
        return False


def _any_form_of(character: str) -> str:
    """Return a pattern of one character: plain, percent-encoded (once or repeatedly), or escaped as in JSON."""
    if character == "%":
        return r"\\*+(?:u0025|%(?:25)*)"
    code = f"(?i:{ord(character):02x})"
    if character == "\\":
        return rf"(?:\\*+(?:u00{code}|%(?:25)*+{code})|\\)"
    return rf"\\*+(?:u00{code}|%(?:25)*+{code}|{re.escape(character)})"


def _base64_forms(secret: str) -> tuple[str, ...]:
    """Return the base64 forms of a secret in a longer text: at each of the three byte offsets, in both alphabets.

    Without those of fewer than 4 characters: a secret of one character has an empty one.
    """
    raw = secret.encode()
    forms: dict[str, None] = {}
    for offset, first in ((0, 0), (1, 2), (2, 3)):  # the characters before `first` depend on what precedes the secret
        inner = b64encode(bytes(offset) + raw).decode()[first : (offset + len(raw)) * 4 // 3]
        forms |= {inner: None, inner.replace("+", "-").replace("/", "_"): None}
    return tuple(form for form in forms if len(form) >= _MIN_ENCODED_LENGTH)
