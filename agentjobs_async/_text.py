"""Text from a server, made fit to be shown: one line, bounded, nothing that a terminal would obey."""

from typing import Final

__all__ = ["one_line", "words_of"]

_ELLIPSIS: Final = "…"


def one_line(text: str, max_bytes: int = 2048) -> str:
    """Give `text` as one line of at most `max_bytes` bytes of UTF-8, each unprintable character escaped as Python does.

    Unprintable is what `str.isprintable` says: control characters, line breaks, direction overrides, surrogates.
    """
    shown = text[: max_bytes + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    encoded = shown.encode()
    if len(encoded) <= max_bytes:
        return shown
    return encoded[: max_bytes - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def words_of(error: BaseException | None, max_bytes: int = 2048) -> str:
    """Give what a foreign exception says as one line, or its type's name when it says nothing or can't be printed."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a foreign exception's words may fail in any way
        text = ""
    return one_line(text, max_bytes) or type(error).__name__
