"""What faults make of a document: other fields, bodies that a decoder must not accept, compressed bodies."""

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from agentjobs_async.testing._dialect import ServedDialect
from agentjobs_async.testing._messages import Answer, reason
from agentjobs_async.testing._places import with_value, without_value

Fields = Iterable[tuple[str, object]]

_HTML = "<!DOCTYPE html><html><head><title>Error</title></head><body><h1>Bad gateway</h1></body></html>"
_BLOCK_BYTES = 1_048_576  # compressed once; a bomb repeats it
_ERRORS = range(300, 600)  # the statuses that are answered with an error document
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_DEFLATE_END = b"\x03\x00"


def error_document(answer: Answer, _where: str, fields: Fields, _dialect: ServedDialect) -> Mapping[str, Any]:
    """Return the document under an answer's status: that of the service, or an error."""
    if answer.status not in _ERRORS:
        return answer.document
    return {"error": dict(fields).get("error") or reason(answer.status)}


def replaced(document: Mapping[str, Any], fields: Fields, dialect: ServedDialect) -> dict[str, Any]:
    """Return a document with some fields replaced, wherever the dialect has them."""
    changed: Any = dict(document)
    for name, value in fields:
        changed = with_value(changed, dialect.place_of(name), value)
    return dict(changed)


def without(document: Mapping[str, Any], name: str, dialect: ServedDialect) -> dict[str, Any]:
    """Return a document without a field, wherever the dialect has it."""
    return dict(without_value(dict(document), dialect.place_of(name)))


def _with_a_name_twice(text: str) -> str:
    """Return a document with its `status` twice, with two values; without a status, with its first member twice."""
    names = list(json.loads(text))
    name = "status" if "status" in names else names[0]
    return f'{{{json.dumps(name)}: "completed", {text.removeprefix("{")}'


def _with_model(text: str, model: str) -> str:
    """Return a document whose `model` is this JSON text."""
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
    "twice": lambda text: _with_a_name_twice(text).encode(),
    "cut": lambda text: text[: len(text) // 2].encode(),
    "null": lambda _text: b"null",
    "list": lambda text: f"[{text}]".encode(),
    "string": lambda text: json.dumps(text).encode(),
    "error": lambda _text: b'{"error": "something went wrong"}',
}
"""The body that each form makes of the text of a good document."""


def _cut(text: str, _size: int) -> bytes:
    whole = gzip.compress(text.encode())
    return whole[: len(whole) // 2]


def bomb(text: str, blanks: int) -> bytes:
    """Return a document and `blanks` bytes of white space after it, compressed without holding them in memory."""
    start = text.encode()
    body = _deflated(start) + _block() * (blanks // _BLOCK_BYTES) + _deflated(b" " * (blanks % _BLOCK_BYTES))
    trailer = struct.pack("<II", _checksum(blanks, zlib.crc32(start)), (len(start) + blanks) % 2**32)
    return _GZIP_HEADER + body + _DEFLATE_END + trailer


def _deflated(data: bytes) -> bytes:
    """Return a compressed block after which others can follow."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)


@cache
def _block() -> bytes:
    return _deflated(b" " * _BLOCK_BYTES)


def _checksum(blanks: int, checksum: int) -> int:
    """Return the checksum of data whose checksum is `checksum`, followed by `blanks` blanks."""
    block = b" " * _BLOCK_BYTES
    for _ in range(blanks // _BLOCK_BYTES):
        checksum = zlib.crc32(block, checksum)
    return zlib.crc32(b" " * (blanks % _BLOCK_BYTES), checksum)


GZIP_FORMS: dict[str, Callable[[str, int], bytes]] = {
    "": lambda text, _size: gzip.compress(text.encode()),
    "false": lambda text, _size: text.encode(),
    "cut": _cut,
    "bomb": bomb,
}
"""The body that each form of the gzip fault makes of the text of a good document, given the blanks of a bomb."""
