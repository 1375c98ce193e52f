"""The URL of a request: the base address and a path template, both checked once, and filled with ids.

An id always becomes exactly one segment of the path, or one value of the query, whatever characters it has.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from string import Formatter
from typing import Final
from urllib.parse import quote

from yarl import URL

from agentjobs_async._text import one_line
from agentjobs_async._validation import is_loopback
from agentjobs_async.errors import InvalidInputError

_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_-]+")  # most ids: quoting them costs more than all else of a URL
_CACHED_URLS: Final = 8192  # for each template: a job is read many times, and yarl caches parts within a URL
_URL_TEXT: Final = re.compile(r"[^\x00-\x20\x7f-\x9f\\\ud800-\udfff]+")
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
_PATH_TEXT: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*")


def checked_base_url(value: object, *, allow_insecure: bool = False) -> URL:
    """Return the address that all paths are appended to; its own path stays, a slash at its end is dropped.

    Raises:
        InvalidInputError: `value` is not http(s), or has no host, or has userinfo, a query or a fragment; or it is
            plain http to a host other than loopback, without `allow_insecure`.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"base_url must be a string, not {type(value).__name__}")
    url = _parsed("base_url", value)
    if "?" in value or "#" in value:
        raise InvalidInputError("base_url must have no query and no fragment; put a query into the path templates")
    if url.scheme == "http" and not allow_insecure and not is_loopback(url.host or ""):
        raise InvalidInputError(
            f"base_url would send the key in plain text to {url.host}: use https, or pass allow_insecure=True"
        )
    return url.with_path(url.raw_path.rstrip("/"), encoded=True)


def checked_proxy(value: object, base: URL, *, allow_insecure: bool = False) -> URL | None:
    """Return the proxy's address; `None` for none.

    Raises:
        InvalidInputError: `value` is not an http(s) address with a host; or the proxy would get the key in plain text:
            `base` is plain http and the proxy is not on loopback, without `allow_insecure`.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInputError(f"proxy must be a string, not {type(value).__name__}")
    proxy = _parsed("proxy", value, userinfo=True)
    if base.scheme == "http" and not allow_insecure and not is_loopback(proxy.host or ""):
        raise InvalidInputError(
            f"proxy would get the key in plain text at {proxy.host}: use an https base_url, or pass allow_insecure=True"
        )
    return proxy


def _parsed(name: str, value: str, *, userinfo: bool = False) -> URL:
    """Return an absolute http(s) URL. An error never quotes its text: it may hold a password."""
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
        raise InvalidInputError(f"{name} must hold no user name or password; pass the key as api_key")
    return url


def service_text(base: URL, *templates: str) -> str:
    """Return an address and path templates as one text, which is the same for each of their spellings."""
    spelled = " ".join((str(base).rstrip("/"), *templates))
    return _ESCAPE.sub(lambda found: found[0].upper(), spelled)


class PathTemplate:
    """A path with placeholders such as `{project_id}`, optionally with a query string.

    Args:
        name: The setting's name, for error messages.
        template: The template.
        base: The address that the path is appended to.
        allowed: The placeholders that the template may have.
        required: The placeholders that the template must have.

    Raises:
        InvalidInputError: `template` does not start with exactly one slash, has a placeholder that is not `allowed`,
            lacks one of `required`, has `.` or `..` as a segment, or characters that no URL has.
    """

    __slots__ = ("_base", "_literals", "_names", "_plain", "url")

    def __init__(
        self, name: str, template: object, base: URL, *, allowed: frozenset[str], required: frozenset[str] = frozenset()
    ) -> None:
        literals, self._names = _split(name, template, allowed)
        missing = required - set(self._names)
        if missing:
            raise InvalidInputError(f"{name} must contain {{{min(missing)}}}: without it all jobs have one address")
        self._base = base
        self._literals = (base.raw_path.rstrip("/") + literals[0], *literals[1:])
        self._plain = "?" not in "".join(literals)
        self.url: Callable[..., URL] = lru_cache(_CACHED_URLS)(self._url)
        """Return the URL for a project id and a job id, each percent-encoded as one segment."""

    def _url(self, project_id: str, job_id: str = "") -> URL:
        ids = {"project_id": project_id, "job_id": job_id}
        path = self._literals[0]
        for name, literal in zip(self._names, self._literals[1:], strict=True):
            text = ids[name]
            path += (text if _UNRESERVED.fullmatch(text) else quote(text, safe="")) + literal
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
        raise InvalidInputError(f"{wanted}: a slash first, then characters of a URL, no fragment")
    if literals[0].startswith("//"):
        raise InvalidInputError(f"{wanted}: with one slash first: two would begin the name of another host")
    if {".", ".."} & set(template.split("?")[0].split("/")):
        raise InvalidInputError(f"{wanted}: without . and .. as segments")
    return tuple(literals), tuple(names)


def _listed(names: frozenset[str]) -> str:
    return " and ".join(f"{{{name}}}" for name in sorted(names, reverse=True))
