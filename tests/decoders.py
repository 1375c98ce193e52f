"""What a session makes of its settings, for tests of its parts."""

from collections.abc import Mapping
from typing import Any

from agentjobs_async import Dialect
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.credentials import Credentials, KeyOf, OwnHeaders
from agentjobs_async._http.responses import ResponseDecoder
from agentjobs_async.telemetry.no_hooks import Hooks


def credentials_of(
    key: str | KeyOf, *, headers: Mapping[str, str] | None = None, dialect: Dialect | None = None
) -> Credentials:
    """Return the credentials of a key, or of a callable."""
    found = key if callable(key) else ApiKey(key)
    return Credentials(found, OwnHeaders(headers or {}), dialect or Dialect(), Hooks())


def decoder_of(
    key: str, limit: int = 100_000, *, headers: Mapping[str, str] | None = None, **settings: Any
) -> ResponseDecoder:
    """Return the decoder of a session with this key, these headers and the settings of a dialect."""
    dialect = Dialect(max_document_bytes=limit, **settings)
    return ResponseDecoder(credentials_of(key, headers=headers, dialect=dialect), dialect)
