"""Answers of the service and the bytes they become, written by hand."""

from collections.abc import Mapping
from http.client import responses
from typing import Any

import attrs

__all__ = ["Answer", "Message", "error", "reason"]

Headers = tuple[tuple[str, str], ...]


@attrs.frozen
class Answer:
    """What the service means to say."""

    status: int
    document: Mapping[str, Any]
    headers: Headers = ()


@attrs.frozen
class Message:
    """A response as it goes over the wire."""

    status: int
    headers: Headers
    body: bytes

    def head(self) -> bytes:
        """Give the status line, the headers and the empty line."""
        lines = [f"HTTP/1.1 {self.status} {reason(self.status)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")

    def to_bytes(self) -> bytes:
        """Give the whole response."""
        return self.head() + self.body


def reason(status: int) -> str:
    """Give the standard phrase of a status."""
    return responses.get(status, "Unknown")


def error(status: int, text: str, *headers: tuple[str, str]) -> Answer:
    """Give the error document of the service."""
    return Answer(status, {"error": text}, headers)
