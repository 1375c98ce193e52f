"""Text from a server, made safe to show: one line, of bounded length, without terminal control characters."""

from typing import Final

__all__ = ["error_text", "one_line"]

_ELLIPSIS: Final = "…"  # 3 bytes of UTF-8, which count


def one_line(text: str, max_bytes: int = 2048) -> str:
    """Return `text` as one line of at most `max_bytes` bytes of UTF-8, unprintable characters escaped as by `repr`.

    `str.isprintable` decides: control characters, line breaks, direction overrides and surrogates are unprintable.
    """
    shown = text[: max_bytes + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
    encoded = shown.encode()
    if len(encoded) <= max_bytes:
        return shown
    return encoded[: max_bytes - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def error_text(error: BaseException | None, max_bytes: int = 2048) -> str:
    """Return the text of a foreign exception as one line; the name of its type if the text is empty or `str` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a foreign exception's __str__ may fail in any way
        text = ""
    return one_line(text, max_bytes) or type(error).__name__
