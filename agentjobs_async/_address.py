"""Where a request goes: the base address and the path templates, checked once, filled in safely for each id.

An id becomes exactly one segment of the path (or one value of the query), whatever it holds.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from string import Formatter
from typing import Final
from urllib.parse import quote

from yarl import URL

from agentjobs_async._text import one_line
from agentjobs_async.errors import InvalidInputError

__all__ = ["PathTemplate", "checked_base_url", "checked_proxy"]

_URL_TEXT: Final = re.compile(r"[^\x00-\x20\x7f-\x9f\\\ud800-\udfff]+")
_PATH_TEXT: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*")


def checked_base_url(value: object, *, allow_insecure: bool = False) -> URL:
    """Give the address under which all paths lie; its own path is kept, a slash at its end is dropped.

    Raises:
        InvalidInputError: Not http(s), no host, userinfo, a query or a fragment; or plain http to other than loopback
            without `allow_insecure`.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"base_url must be a string, not {type(value).__name__}")
    url = _parsed("base_url", value)
    if "?" in value or "#" in value:
        raise InvalidInputError("base_url must have no query and no fragment; a query belongs into the path templates")
    if url.scheme == "http" and not allow_insecure and not _is_loopback(url.host or ""):
        raise InvalidInputError(
            f"base_url would send the key in plain text to {url.host}: use https, or say allow_insecure=True"
        )
    return url.with_path(url.raw_path.rstrip("/"), encoded=True)


def checked_proxy(value: object, base: URL, *, allow_insecure: bool = False) -> URL | None:
    """Give the proxy's address; `None` for none.

    Raises:
        InvalidInputError: It is no http(s) address of a host; or it would get the key in plain text, because `base`
            is plain http and the proxy not on loopback, without `allow_insecure`.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInputError(f"proxy must be a string, not {type(value).__name__}")
    proxy = _parsed("proxy", value, userinfo=True)
    if base.scheme == "http" and not allow_insecure and not _is_loopback(proxy.host or ""):
        raise InvalidInputError(
            f"proxy would get the key in plain text at {proxy.host}: use an https base_url, or say allow_insecure=True"
        )
    return proxy


def _parsed(name: str, value: str, *, userinfo: bool = False) -> URL:
    """Parse an absolute http(s) URL. Its text is never quoted in an error: it may hold a password."""
    wanted = f"{name} must be an address such as https://api.example.com"
    if not value:
        raise InvalidInputError(f"{wanted}: it is empty")
    if not _URL_TEXT.fullmatch(value):
        raise InvalidInputError(f"{wanted}, without spaces, backslashes or control characters")
    try:
        url = URL(value)
        usable = url.scheme in {"http", "https"} and bool(url.host) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInputError(f"{wanted}: http or https, and a host")
    if not userinfo and "@" in value.split("//", 1)[1].split("/", 1)[0]:
        raise InvalidInputError(f"{name} must hold no user name or password; the key goes into api_key")
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class PathTemplate:
    """A path with placeholders such as `{project_id}`, and perhaps a query string.

    Raises:
        InvalidInputError: It does not start with a slash, knows other placeholders, lacks one of `required`, or has
            characters that a URL does not.
    """

    __slots__ = ("_base", "_literals", "_names", "_plain")

    def __init__(
        self, name: str, template: object, base: URL, *, allowed: frozenset[str], required: frozenset[str] = frozenset()
    ) -> None:
        self._literals, self._names = _split(name, template, allowed)
        missing = required - set(self._names)
        if missing:
            raise InvalidInputError(f"{name} must contain {{{min(missing)}}}: without it every job has one address")
        self._base = base
        self._plain = "?" not in "".join(self._literals)

    def url(self, ids: Mapping[str, str]) -> URL:
        """Give the address for `ids`, each percent-encoded as one segment."""
        parts = [self._literals[0]]
        for name, literal in zip(self._names, self._literals[1:], strict=True):
            parts += (quote(ids[name], safe=""), literal)
        path = self._base.raw_path.rstrip("/") + "".join(parts)
        if self._plain:
            return self._base.with_path(path, encoded=True)
        return URL(f"{self._base.origin()}{path}", encoded=True)


def _split(name: str, template: object, allowed: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    wanted = f"{name} must be a path such as /v2/agent/{{project_id}}/job"
    if not isinstance(template, str):
        raise InvalidInputError(f"{wanted}, not {type(template).__name__}")
    try:
        fields = list(Formatter().parse(template))
    except ValueError:
        fields = []
    literals, names = [""], []
    for literal, placeholder, specification, conversion in fields:
        literals[-1] += literal
        if placeholder is not None:
            if placeholder not in allowed or specification or conversion:
                raise InvalidInputError(
                    f"{name} may have only the placeholders {_listed(allowed)}, not {{{one_line(placeholder, 60)}}}"
                )
            names.append(placeholder)
            literals.append("")
    text = "".join(literals)
    if not text.startswith("/") or not literals[0].startswith("/") or not _PATH_TEXT.fullmatch(text):
        raise InvalidInputError(f"{wanted}: a slash first, then characters of a URL, without a fragment")
    if {".", ".."} & set(template.split("?")[0].split("/")):
        raise InvalidInputError(f"{wanted}: without . and .. as segments")
    return tuple(literals), tuple(names)


def _listed(names: frozenset[str]) -> str:
    return " and ".join(f"{{{name}}}" for name in sorted(names, reverse=True))
