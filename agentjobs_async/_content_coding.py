"""Content codings undone within bounds: a compressed bomb costs what a document may cost, and no more."""

import zlib
from typing import Final

from agentjobs_async.errors import ProtocolError

__all__ = ["inflated"]

_WINDOW_BITS: Final = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}


def inflated(body: bytes, coding: str, limit: int) -> bytes:
    """Undo gzip or deflate, never making more than `limit` bytes of it (and one to tell)."""
    for window_bits in _WINDOW_BITS.get(coding, ()):
        inflater = zlib.decompressobj(window_bits)
        try:
            plain = inflater.decompress(body, limit + 1)
        except zlib.error:
            continue
        if len(plain) > limit:
            raise ProtocolError("too_large", f"more than {limit} bytes when decompressed")
        if inflater.eof and not inflater.unused_data:
            return plain
    raise ProtocolError("encoding", "not in gzip or deflate, though it claims a content coding")
