"""Answers of the service, and their bytes; they share no code with the client."""

from collections.abc import Mapping
from http.client import responses
from typing import Any, Self

import attrs

Headers = tuple[tuple[str, str], ...]


@attrs.frozen
class Answer:
    """An answer of the service before a fault changes it."""

    status: int
    document: Mapping[str, Any]
    headers: Headers = ()


@attrs.frozen
class Message:
    """A response as it is sent.

    Args:
        status: The HTTP status.
        headers: Names and values, in order.
        body: The bytes after the headers.
        surplus: A second response that no request asked for.
    """

    status: int
    headers: Headers
    body: bytes
    surplus: bytes = b""

    def head(self) -> bytes:
        """Return the status line, the headers and the empty line."""
        lines = [f"HTTP/1.1 {self.status} {reason(self.status)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")

    def to(self, method: str) -> Self:
        """Return the response to a request of this method: for HEAD it has no body."""
        return attrs.evolve(self, body=b"") if method == "HEAD" else self

    def with_length(self, length: int) -> Self:
        """Return the response with another Content-Length."""
        headers = tuple((name, str(length) if name == "Content-Length" else value) for name, value in self.headers)
        return attrs.evolve(self, headers=headers)

    def to_bytes(self) -> bytes:
        """Return the whole response, without its surplus."""
        return self.head() + self.body


def reason(status: int) -> str:
    """Return the standard phrase of a status."""
    return responses.get(status, "Unknown")


def error(status: int, text: str, *headers: tuple[str, str]) -> Answer:
    """Return an answer with the error document of the service."""
    return Answer(status, {"error": text}, headers)
