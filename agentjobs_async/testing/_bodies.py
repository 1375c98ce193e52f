"""Bodies that a decoder must not trust, and bodies that are compressed."""

import gzip
import json
import zlib
from collections.abc import Callable
from functools import cache

__all__ = ["CONTENT_TYPES", "FORMS", "compressed", "padded"]

_HTML = "<!DOCTYPE html><html><head><title>Error</title></head><body><h1>Bad gateway</h1></body></html>"
_BLOCK = 1_048_576
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def _with_model(text: str, model: str) -> str:
    """Give a document whose model is the JSON text given."""
    return f'{text.rstrip().removesuffix("}")}, "model": {model}}}'


FORMS: dict[str, Callable[[str], bytes]] = {
    "html": lambda _text: _HTML.encode(),
    "empty": lambda _text: b"",
    "text": lambda _text: b"upstream connect error",
    "latin-1": lambda text: _with_model(text, '"mod\u00e8le"').encode("latin-1"),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-8": lambda text: _with_model(text, '"?"').encode().replace(b"?", b"\xff\xc0\x80"),
    "bom": lambda text: text.encode("utf-8-sig"),
    "surrogate": lambda text: _with_model(text, r'"\ud800"').encode(),
    "deep": lambda _text: b"[" * 100_000 + b"]" * 100_000,
    "number": lambda text: _with_model(text, "9" * 10_000).encode(),
    "nan": lambda text: _with_model(text, "NaN").encode(),
    "twice": lambda text: f'{{"status": "completed", {text.removeprefix("{")}'.encode(),
    "cut": lambda text: text[: len(text) // 2].encode(),
    "null": lambda _text: b"null",
    "list": lambda text: f"[{text}]".encode(),
    "string": lambda text: json.dumps(text).encode(),
    "error": lambda _text: b'{"error": "something went wrong"}',
}
"""What becomes of the text of a good document."""

CONTENT_TYPES = {"html": "text/html; charset=utf-8", "text": "text/plain"}
"""Of the forms that are not said to be JSON."""


def padded(text: str, size: int) -> bytes:
    """Give a document of `size` bytes, or of its own if that is more."""
    return text.encode().ljust(size)


def compressed(form: str, text: str, size: int) -> bytes:
    """Give the bytes of a form of the gzip fault; `size` is what a bomb grows to."""
    match form:
        case "false":
            return text.encode()
        case "cut":
            whole = gzip.compress(text.encode())
            return whole[: len(whole) // 2]
        case "bomb":
            return bomb(text, size)
        case _:
            return gzip.compress(text.encode())


@cache
def _blanks() -> bytes:
    """Give a compressed block of blanks that can be repeated."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(b" " * _BLOCK) + compressor.flush(zlib.Z_FULL_FLUSH)


def bomb(text: str, size: int) -> bytes:
    """Give a document compressed whose white space grows to about `size` bytes; its checksum is never reached."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    start = compressor.compress(text.encode()) + compressor.flush(zlib.Z_FULL_FLUSH)
    return _GZIP_HEADER + start + _blanks() * (size // _BLOCK) + b"\x03\x00" + bytes(8)
