"""Who is answered: requests to one of the board's own names, from its own pages, with its token where one is needed."""

import hmac
import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from attrs import field, frozen

__all__ = ["Access"]


_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound
_BEARER: Final = "Bearer "


def _lower(names: Collection[str]) -> frozenset[str]:
    return frozenset(name.strip("[]").lower() for name in names)


@frozen
class Access:
    """The rules by which a request is answered or refused.

    Attributes:
        token: What a request must have to change rows, and to read them where reading needs it.
        hosts: The names and addresses under which the board is reached; `0.0.0.0` or `::` stands for any address.
        reading_needs_token: Whether rows are shown only to a request with the token.
        acts: Whether items may be changed.
    """

    token: str = field(repr=False)
    hosts: frozenset[str] = field(converter=_lower)
    reading_needs_token: bool
    acts: bool

    def check(self, request: web.Request) -> None:
        """Refuse a request to a foreign name, or from a page of another origin.

        A name that an attacker's server resolves to this machine (DNS rebinding) gives that server's pages the rights
        of the board's own; but the browser still sends this name.

        Raises:
            HTTPForbidden: It is foreign.
        """
        if not self._is_own(request.host):
            raise web.HTTPForbidden(text="This host is not one of the board's own names.")
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and _host(origin) != request.host.lower():
            raise web.HTTPForbidden(text="The request comes from a page of another origin.")

    def check_reading(self, request: web.Request) -> None:
        """Refuse a request for rows without the token, where reading needs it.

        Raises:
            HTTPUnauthorized: It has none, or a wrong one.
        """
        if self.reading_needs_token:
            self._check_token(request)

    def check_acting(self, request: web.Request) -> None:
        """Refuse a request that may not change items.

        Raises:
            HTTPForbidden: The board is read-only.
            HTTPUnauthorized: The request has no token, or a wrong one.
        """
        if not self.acts:
            raise web.HTTPForbidden(text="The board is read-only: serve it with --allow-actions.")
        self._check_token(request)

    def _check_token(self, request: web.Request) -> None:
        given = request.headers.get(hdrs.AUTHORIZATION, "")
        wanted = f"{_BEARER}{self.token}".encode()
        if not hmac.compare_digest(given.encode(errors="replace"), wanted):
            raise web.HTTPUnauthorized(
                text="This needs the token of the address that was printed when the board was started.",
                headers={hdrs.WWW_AUTHENTICATE: "Bearer"},
            )

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self.hosts or (bool(self.hosts & _ANY_ADDRESS) and _is_address(name))


def _host(origin: str) -> str:
    """Return host and port of an origin; a browser leaves out the port of its scheme in both headers."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    """Return whether a host is an IP address, which no name server can redirect."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
