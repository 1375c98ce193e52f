"""The requests that a session would send, made of sample values: nothing is sent, and no secret is read."""

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from agentjobs_async._dialect.body import BodyTemplate
from agentjobs_async._dialect.dialect import Dialect
from agentjobs_async._dialect.templates import create_template, get_template
from agentjobs_async._http.credentials import is_secret
from agentjobs_async._http.masking import MASK
from agentjobs_async._http.transport import OF_A_BODY, checked_user_agent, usual_headers
from agentjobs_async._http.urls import UrlTemplate, checked_base_url

_SAMPLE_JOB: Final = "JOB_ID"
_SAMPLE_PROMPT: Final = "PROMPT"
_SAMPLE_EXTRA: Final = "EXTRA"
_SAMPLE_IDEMPOTENCY_KEY: Final = "IDEMPOTENCY_KEY"


@frozen
class Preview:
    """A request that would be sent.

    Attributes:
        method: The method.
        url: The whole address.
        headers: The header fields, but for those that frame the request, in the order of their being sent.
        body: The JSON object that it carries; `None` for a read.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None = None


def previews(address: str, dialect: Dialect, own: Mapping[str, str | None], project_id: str) -> tuple[Preview, Preview]:
    """Return a create and a read, with sample values in place of the prompt, the job's id, extras and keys.

    Args:
        address: The address of the service; plain http is allowed.
        dialect: What differs from the usual service.
        own: The user's own headers: their values, or `None` for a secret that is not known. The key and values that
            are masked everywhere are shown as `***`.
        project_id: The project.

    Raises:
        InvalidInputError: The address is none.
    """
    base = checked_base_url(address, allow_insecure=True)
    body = BodyTemplate(dialect.body)
    extra = dict.fromkeys(sorted(body.extras), _SAMPLE_EXTRA)
    document = json.loads(body.filled(_SAMPLE_PROMPT, project_id, extra))
    once = {} if dialect.idempotency_header is None else {dialect.idempotency_header: _SAMPLE_IDEMPOTENCY_KEY}
    create = UrlTemplate(base, create_template(dialect.create_path)).url(project_id)
    read = UrlTemplate(base, get_template(dialect.get_path)).url(project_id, _SAMPLE_JOB)
    return (
        Preview("POST", str(create), _headers(dialect, own, OF_A_BODY | once), document),
        Preview("GET", str(read), _headers(dialect, own, {})),
    )


def _headers(dialect: Dialect, own: Mapping[str, str | None], more: Mapping[str, str]) -> dict[str, str]:
    shown = {name: MASK if value is None or is_secret(value) else value for name, value in own.items()}
    replaced = {name.lower() for name in own}
    usual = {
        name: value for name, value in usual_headers(checked_user_agent(None)).items() if name.lower() not in replaced
    }
    return {**usual, dialect.key_header: dialect.key_format.replace("{key}", MASK), **more, **shown}
