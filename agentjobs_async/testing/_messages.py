"""Requests as they arrive, answers of the service, and their bytes; they share no code with the client."""

from collections.abc import Iterable, Mapping
from http.client import responses
from typing import Any, Self

import attrs
from multidict import CIMultiDict, CIMultiDictProxy

Headers = tuple[tuple[str, str], ...]

_SECRET = frozenset({"authorization", "proxy-authorization", "cookie"})


class _Credential(str):
    """A text whose repr is masked: neither the repr of its container nor a failing assertion shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def without_shown_credentials(headers: Iterable[tuple[str, str]], key_header: str) -> CIMultiDictProxy[str]:
    """Return headers whose values are whole, but whose repr shows no credential.

    Args:
        headers: Names and values.
        key_header: The name of the header of the key.
    """
    secret = {*_SECRET, key_header.lower()}
    return CIMultiDictProxy(
        CIMultiDict((name, _Credential(value) if name.lower() in secret else value) for name, value in headers)
    )


@attrs.frozen(kw_only=True)
class ReceivedRequest:
    """A request that arrived.

    Args:
        method: The HTTP method.
        target: The request target exactly as sent: path and query.
        headers: Case-insensitive; for a repeated header the first value, and `getall` returns all. The repr has no key.
        body: The bytes of the body.
        at: Seconds on the loop's clock.
        connection: The number of its connection, from 1.
        project_id: The project in the path, percent-decoded, else that of the job, or of the body of a create;
            `None` outside of the service's paths.
        job_id: The job in the path, percent-decoded; `None` in any other path.
        prompt: The prompt of a valid create, or of the job that is read.
        extra: The further fields of a valid create, by their names.
        fault: The text of the fault it met; `None` for none.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    connection: int
    project_id: str | None = None
    job_id: str | None = None
    prompt: str | None = None
    extra: Mapping[str, Any] = attrs.field(factory=dict)
    fault: str | None = None


@attrs.frozen
class Answer:
    """An answer of the service before a fault changes it.

    Args:
        status: The HTTP status.
        document: The document.
        headers: Headers of its own.
        job_id: The id of the job that it says was created.
    """

    status: int
    document: Mapping[str, Any]
    headers: Headers = ()
    job_id: str | None = None


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
