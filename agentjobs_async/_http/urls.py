"""The URL of a request: the base address and a path template, both checked once, and filled with ids.

An id always becomes exactly one segment of the path, or one value of the query, whatever characters it has.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from yarl import URL

from agentjobs_async._dialect.templates import JOB, PROJECT, PathTemplate
from agentjobs_async._validation import is_loopback
from agentjobs_async.errors import InvalidInputError

_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_-]+")  # most ids: quoting them costs more than all else of a URL
_CACHED_URLS: Final = 8192  # for each template: a job is read many times, and yarl caches parts within a URL
_URL_TEXT: Final = re.compile(r"[^\x00-\x20\x7f-\x9f\\\ud800-\udfff]+")
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")


def checked_base_url(value: object, *, allow_insecure: bool = False) -> URL:
    """Return the address that all paths are appended to; its own path stays, a slash at its end is dropped.

    Raises:
        InvalidInputError: `value` is not http(s), or has no host, or has userinfo, a query or a fragment; or it is
            plain http to a host other than loopback, without `allow_insecure`.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"base_url must be a string, not {type(value).__name__}")
    url = parsed_address("base_url", value, "https://api.example.com")
    if "?" in value or "#" in value:
        raise InvalidInputError("base_url must have no query and no fragment; put a query into the path templates")
    if url.scheme == "http" and not allow_insecure and not is_loopback(url.host or ""):
        raise InvalidInputError(
            f"base_url would send the key in plain text to {url.host}: use https, or pass allow_insecure=True"
        )
    return url.with_path(url.raw_path.rstrip("/"), encoded=True)


def parsed_address(name: str, value: str, example: str, *, userinfo: bool = False) -> URL:
    """Return an absolute http(s) URL. An error never quotes its text: it may hold a password.

    Args:
        name: The setting's name, for errors.
        value: The text.
        example: An address that would be right, for errors.
        userinfo: Whether it may hold a user and a password.

    Raises:
        InvalidInputError: The text is no such address.
    """
    wanted = f"{name} must be an address such as {example}"
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


class UrlTemplate:
    """The URLs that a path template makes at one address."""

    __slots__ = ("_base", "_literals", "_names", "_plain", "url")

    def __init__(self, base: URL, template: PathTemplate) -> None:
        literals = template.literals
        self._base = base
        self._names = template.names
        self._literals = (base.raw_path.rstrip("/") + literals[0], *literals[1:])
        self._plain = "?" not in "".join(literals)
        self.url: Callable[..., URL] = lru_cache(_CACHED_URLS)(self._url)
        """Return the URL for a project id and a job id, each percent-encoded as one segment."""

    def _url(self, project_id: str, job_id: str = "") -> URL:
        ids = {PROJECT: project_id, JOB: job_id}
        path = self._literals[0]
        for name, literal in zip(self._names, self._literals[1:], strict=True):
            text = ids[name]
            path += (text if _UNRESERVED.fullmatch(text) else quote(text, safe="")) + literal
        if self._plain:
            return self._base.with_path(path, encoded=True)
        return URL(f"{self._base.origin()}{path}", encoded=True)
