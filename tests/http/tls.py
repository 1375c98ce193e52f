"""A server of blocking sockets that wants the certificates of its clients: asyncio's own never sends its TLS alerts."""

import socket
import ssl
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import Self

import trustme

from tests.scripted import address, http, loopback_socket

_CREATED = http(201, b'{"id": "job_1", "status": "active"}')


class CertificateServer:
    """Answers each request with a job, once the certificate of its client is accepted.

    Args:
        authority: Has signed its certificate, and must have signed that of a client.
        version: The version of TLS.

    Attributes:
        base_url: Its address.
        connections: The number of connections so far.
        requests: The number of requests that were read so far.
    """

    def __init__(self, authority: trustme.CA, version: ssl.TLSVersion) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.maximum_version = version
        self._context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(self._context)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._socket = loopback_socket()
        self.base_url = address(self._socket, "https")
        self.connections = self.requests = 0

    def __enter__(self) -> Self:
        self._socket.listen()
        self._thread = Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                self.connections += 1
                with plain, suppress(OSError):
                    self._answer(plain)

    def _answer(self, plain: socket.socket) -> None:
        with self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as secure:
            try:
                secure.do_handshake()
                if secure.recv(65_536):
                    self.requests += 1
                    secure.sendall(_CREATED)
            except ssl.SSLError:  # the alert is on its way; were the request not read, a reset would overtake it
                secure.shutdown(socket.SHUT_WR)
                while socket.socket.recv(secure, 65_536):
                    pass


def client_context(authority: trustme.CA, certificate: trustme.LeafCert | None) -> ssl.SSLContext:
    """Return settings of a client that trusts servers of an authority, and has a certificate or none."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context
