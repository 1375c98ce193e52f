"""Which proxy the requests of a session go through: the one that is named, the environment's, or none."""

import os
import re
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from yarl import URL

from agentjobs_async._http.masking import Masker
from agentjobs_async._http.urls import parsed_address
from agentjobs_async._validation import is_loopback
from agentjobs_async.errors import InvalidInputError

ENVIRONMENT: Final = "env"
"""The setting that reads the environment."""

_EXAMPLE: Final = "http://proxy.example.com:3128"
_SOCKS: Final = re.compile(r"socks\w*:", re.IGNORECASE)
_MIN_MASKED_LENGTH: Final = 8  # characters of a password by itself, as of a key
_ALL: Final = "all"  # of the environment's entries: the proxy of every scheme that has none of its own


class Proxy:
    """An http(s) proxy, or none: its address, which is shown, and its user and password, which never are.

    The password is held in a closure, so that neither `vars` nor a traceback with locals shows it.

    Args:
        url: The address, with or without a user and a password; `None` for no proxy.
        tunnels: Whether requests go through a tunnel, as those over TLS do; the proxy reads others.

    Attributes:
        url: The address without them; `None` for no proxy.
        name: Host and port, as errors name the proxy; empty for no proxy.
        has_credentials: Whether there is a user or a password.
        maskers: Replace these in texts: a proxy of plain http answers itself, and may echo them.
    """

    __slots__ = ("_reveal", "_tunnels", "has_credentials", "maskers", "name", "url")

    def __init__(self, url: URL | None, *, tunnels: bool = True) -> None:
        credentials = {} if url is None else _credentials(url)
        self.maskers = () if url is None else _maskers(url)
        self._reveal: Callable[[], dict[str, str]] = lambda: dict(credentials)
        self._tunnels = tunnels
        self.has_credentials = bool(credentials)
        self.url = None if url is None else url.origin()
        self.name = "" if url is None else f"{url.host_subcomponent}:{url.port}"

    def request_headers(self) -> dict[str, str]:
        """Return the headers that each request needs for the proxy: none through a tunnel."""
        return {} if self._tunnels else self._reveal()

    def tunnel_headers(self) -> dict[str, str] | None:
        """Return the headers with which a tunnel is asked for; `None` where there is no tunnel."""
        return self._reveal() if self._tunnels and self.url is not None else None

    def __repr__(self) -> str:
        return f"<Proxy {self.name or None}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a proxy may have a password: it is never pickled or copied")


DIRECT: Final = Proxy(None)
"""No proxy."""


class ProxySetting:
    """The value of a session's `proxy`, which may hold a password: no frame of an error shows it."""

    __slots__ = ("_reveal",)

    def __init__(self, value: object) -> None:
        self._reveal: Callable[[], object] = lambda: value

    def proxy_to(self, base: URL, *, allow_insecure: bool) -> Proxy:
        """Return the proxy of requests to `base`; for `"env"` it is read from the environment now.

        Raises:
            InvalidInputError: The value, or a variable of the environment, is no address of an http(s) proxy; or the
                proxy would get the key in plain text: `base` is plain http and the proxy is not on loopback, without
                `allow_insecure`.
        """
        found = _proxy_to(base, self._reveal(), allow_insecure=allow_insecure)
        if isinstance(found, InvalidInputError):
            raise found
        return found


def _proxy_to(base: URL, value: object, *, allow_insecure: bool) -> Proxy | InvalidInputError:
    """Return the proxy, or the error that refuses it, without its traceback: the frames hold the password."""
    try:
        if value is None:
            return DIRECT
        if value != ENVIRONMENT:
            return checked_proxy("proxy", value, base, allow_insecure=allow_insecure)
        proxies = urllib.request.getproxies_environment()
        entry = environment_entry(base, proxies)
        if entry is None:
            return DIRECT
        return checked_proxy(_variable(entry), proxies[entry], base, allow_insecure=allow_insecure)
    except InvalidInputError as error:
        return error.with_traceback(None)


def environment_entry(base: URL, proxies: Mapping[str, str]) -> str | None:
    """Return which entry of the environment's proxies requests to `base` go through; `None` for none of them.

    Args:
        base: The address of the service.
        proxies: As `urllib.request.getproxies_environment` has them: `https`, `http` and `all`, and the hosts without a
            proxy as `no`. An entry of `no` may have a port, that of an address without one included.
    """
    host = base.host or ""
    if is_loopback(host):
        return None
    bypasses = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # missing in typeshed
    if any(bypasses(name, proxies) for name in (f"{base.host_subcomponent}:{base.port}", host)):
        return None
    return next((entry for entry in (base.scheme, _ALL) if entry in proxies), None)


def _variable(entry: str) -> str:
    """Return the name of the variable that an entry of the environment's proxies was read from."""
    name = f"{entry}_proxy"
    return name if os.environ.get(name) else name.upper()


def checked_proxy(name: str, value: object, base: URL, *, allow_insecure: bool = False) -> Proxy:
    """Return the proxy that a setting names. A value without a scheme, such as `proxy.example.com:3128`, is http.

    Args:
        name: The argument or the variable, for errors. They never quote the value.
        value: The address.
        base: The address of the service.
        allow_insecure: Whether the proxy may read the key.

    Raises:
        InvalidInputError: `value` is not the address of an http(s) proxy, or has neither scheme nor port, or comes from
            ALL_PROXY; or the proxy would get the key in plain text.
    """
    if name.lower() == f"{_ALL}_proxy":
        variable = f"{base.scheme.upper()}_PROXY"
        raise InvalidInputError(
            f"{name} is not read: name an http or https proxy by {variable}, the host in NO_PROXY, or connect directly"
            " by proxy=None (at the command line --proxy none)"
        )
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be a string, not {type(value).__name__}")
    if _SOCKS.match(value):
        raise InvalidInputError(f"{name} must be an address such as {_EXAMPLE}: SOCKS proxies are not supported")
    has_scheme = not value or "://" in value
    url = parsed_address(name, value if has_scheme else f"http://{value}", _EXAMPLE, userinfo=True)
    if not has_scheme and url.explicit_port is None:
        raise InvalidInputError(f"{name} must be an address such as {_EXAMPLE}: it has neither a scheme nor a port")
    if base.scheme == "http" and not allow_insecure and not is_loopback(url.host or ""):
        raise InvalidInputError(
            f"{name} would get the key in plain text at {url.host}: use an https base_url, or pass allow_insecure=True"
        )
    return Proxy(url, tunnels=base.scheme == "https")


def _maskers(url: URL) -> tuple[Masker, ...]:
    """Return what masks user and password: together, as base64 has them, and alone where one is long enough."""
    if url.user is None and url.password is None:
        return ()
    secret = url.password or url.user or ""  # some proxies want a token as the user
    alone = [secret] if len(secret) >= _MIN_MASKED_LENGTH else []
    return tuple(map(Masker, [f"{url.user or ''}:{url.password or ''}", *alone]))


def _credentials(url: URL) -> dict[str, str]:
    if url.user is None and url.password is None:
        return {}
    pair = f"{url.user or ''}:{url.password or ''}".encode()
    return {"Proxy-Authorization": f"Basic {b64encode(pair).decode()}"}
