"""The command `service check`: what a service file says, and both requests that it makes, none of which is sent."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import click
from attrs import frozen

from agentjobs_async import Dialect, InvalidInputError, JobStatus
from agentjobs_async._dialect.fields import places
from agentjobs_async._dialect.service_file import ServiceFile, Variable
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.masking import MASK
from agentjobs_async._http.preview import Preview, previews
from agentjobs_async._text import limit, one_line
from agentjobs_async._validation import checked_id, is_loopback
from agentjobs_async.cli._input.options import JSON_OPTION, TEXT
from agentjobs_async.cli._input.service import ServiceFileError, described_in
from agentjobs_async.cli._input.service_options import project_option
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.help import command
from agentjobs_async.cli.process import Context, run_action

_SAMPLE_PROJECT: Final = "PROJECT"
_SAMPLE_ADDRESS: Final = "https://service.example"
_ADDRESS, _KEY = "AGENTJOBS_BASE_URL", "AGENTJOBS_API_KEY"
_EXAMPLE: Final = "agentjobs service check service.toml"
_PAGE: Final = """\b
Exit codes:
  0    the file is valid
  2    it is not, or wrong usage
"""


@click.group("service", epilog=f"\b\nExample:\n  {_EXAMPLE}")
def service() -> None:
    """Check a service file: what commands take by --service FILE."""


@command("check", _PAGE, _EXAMPLE)
@click.argument("file", metavar="FILE", type=TEXT)
@project_option("The project in both requests.")
@JSON_OPTION
def check(file: str, project_id: str | None, *, as_json: bool) -> int:
    """Show what the service FILE makes of both requests.

    It also shows where the fields of a job are looked for in the answers. Nothing is sent, and no variable is shown:
    the key is ***, and so is a header that is masked elsewhere. Variables that are not set are named.
    """
    checked = _Checked.of(file, checked_id("project_id", project_id or _SAMPLE_PROJECT))
    return run_action(lambda context: _show(context, checked, as_json=as_json))


service.add_command(check)


@frozen
class _Checked:
    """A service file that is valid.

    Attributes:
        described: What it says.
        create: The request that creates a job.
        read: The request that reads it.
        warnings: What keeps a command from using it as it stands.
    """

    described: ServiceFile
    create: Preview
    read: Preview
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, file: str, project_id: str) -> "_Checked":
        """Return what a file says, checked.

        Raises:
            ServiceFileError: It can't be read, or is invalid.
        """
        described = described_in(file)
        own = {name: None if isinstance(value, Variable) else value for name, value in described.headers.items()}
        address = described.base_url or os.environ.get(_ADDRESS) or _SAMPLE_ADDRESS
        try:
            create, read = previews(address, described.dialect, own, project_id)
        except InvalidInputError as error:
            defect = error.message if described.base_url else f"{error.message} (it was read from {_ADDRESS})"
        else:
            return cls(described, create, read, tuple(_warnings(described)))
        raise ServiceFileError(f"{one_line(file, 200)}: {defect}")

    @property
    def dialect(self) -> Dialect:
        """The dialect of the file."""
        return self.described.dialect


def _warnings(described: ServiceFile) -> Iterator[str]:
    address = urlsplit(described.base_url or os.environ.get(_ADDRESS, ""))
    if not address.scheme:
        yield f"There is no address: add base_url to the file, set {_ADDRESS}, or give --base-url."
    if address.scheme == "http" and not is_loopback(address.hostname or ""):
        yield "The key crosses the network readable by plain http: commands need --allow-insecure."
    variable = described.key_env or _KEY
    if not (key := os.environ.get(variable)):
        yield f"{variable} is not set: set it to the key, or give --key-file."
    elif (defect := _defect_of(key)) is not None:
        yield f"{variable}: {defect}."
    for name, value in described.headers.items():
        if isinstance(value, Variable) and not os.environ.get(value.name):
            yield f"{value.name} is not set: set it to the value of the header {name}."
        elif isinstance(value, str) and value.startswith("$"):
            yield f'The header {name} is sent as it stands, with its $: {{ env = "NAME" }} reads a variable.'


def _defect_of(key: str) -> str | None:
    """Return what is wrong with a key, without quoting it; `None` where it can be sent."""
    try:
        ApiKey(key)
    except InvalidInputError as error:
        return error.message
    return None


async def _show(context: Context, checked: _Checked, *, as_json: bool) -> int:
    screen = context.screen
    if as_json:
        screen.json_lines([_document(checked)])
    else:
        _show_request(screen, "Create", checked.create, _sources(checked))
        _show_request(screen, "Read", checked.read, _sources(checked))
        _show_documents(screen, checked.dialect)
        _show_repeats(screen, checked.dialect)
        for words in checked.warnings:
            screen.notice(("Warning: ", "bold yellow"), words)
    return ExitCode.COMPLETED


def _sources(checked: _Checked) -> dict[str, str]:
    """Return where each header that is shown as *** comes from, in words."""
    own = dict.fromkeys(checked.described.headers, "in the file")
    return own | {name: f"from {variable}" for name, variable in _variables(checked).items()}


def _variables(checked: _Checked) -> dict[str, str]:
    """Return the environment variable from which each header comes that has one."""
    found = {name: value.name for name, value in checked.described.headers.items() if isinstance(value, Variable)}
    return {checked.dialect.key_header: checked.described.key_env or _KEY, **found}


def _show_request(screen: Screen, title: str, request: Preview, sources: Mapping[str, str]) -> None:
    screen.line((title, "bold"))
    screen.whole_line("  ", (request.method, "bold cyan"), f" {request.url}")
    for name, value in request.headers.items():
        source = f"  ({sources[name]})" if name in sources and MASK in value else ""
        screen.whole_line("  ", (f"{name}:", "cyan"), f" {value}", (source, "dim"))
    if request.body is not None:
        screen.line()
        for line in json.dumps(request.body, indent=2, ensure_ascii=False).split("\n"):
            screen.whole_line(f"  {line}")
    screen.line()


def _show_documents(screen: Screen, dialect: Dialect) -> None:
    """Show where each field of a job is looked for in the answer to either request, and what the statuses mean."""
    screen.line(("Documents", "bold"))
    found = places(dialect.fields)
    width = max(map(len, found))
    for name, place in found.items():
        kind = "  (an integer)" if name == "id" and dialect.integer_ids else ""
        screen.whole_line("  ", (f"{name:<{width}}", "cyan"), f"  {place}", (kind, "dim"))
    screen.line()
    screen.line(("Statuses", "bold"))
    statuses = _statuses(dialect)
    width = max(map(len, statuses))
    for word, status in statuses.items():
        end = "" if status is JobStatus.ACTIVE else "  (ends a wait)"
        screen.whole_line("  ", (f"{word:<{width}}", "cyan"), f"  {status}", (end, "dim"))
    screen.line(f"  {'any other':<{width}}  counts as active")


def _statuses(dialect: Dialect) -> dict[str, JobStatus]:
    """Return what each word of a document means: those of the dialect, and the usual ones, which stay."""
    return {**dialect.statuses, **{str(status): status for status in JobStatus}}


def _show_repeats(screen: Screen, dialect: Dialect) -> None:
    """Show which creates are sent again, where the dialect says something of that."""
    lines = []
    if dialect.create_refusals:
        lines.append(f"  after {', '.join(map(str, sorted(dialect.create_refusals)))}, which start no agent")
    if dialect.idempotency_header is not None:
        seconds = limit(dialect.idempotency_seconds)
        lines.append(f"  of an unknown outcome, with the same {dialect.idempotency_header}, for {seconds}")
    if lines:
        screen.line()
        screen.line(("Creates that are sent again", "bold"))
        for line in lines:
            screen.line(line)


def _document(checked: _Checked) -> dict[str, Any]:
    """Return all that is shown as JSON."""
    dialect = checked.dialect
    return {
        "create": _request_document(checked.create),
        "read": _request_document(checked.read),
        "variables": _variables(checked),
        "fields": places(dialect.fields),
        "integer_ids": dialect.integer_ids,
        "statuses": _statuses(dialect),
        "create_refusals": sorted(dialect.create_refusals),
        "max_document_bytes": dialect.max_document_bytes,
        "idempotency_header": dialect.idempotency_header,
        "idempotency_seconds": dialect.idempotency_seconds,
        "warnings": list(checked.warnings),
    }


def _request_document(request: Preview) -> dict[str, Any]:
    body = {} if request.body is None else {"body": request.body}
    return {"method": request.method, "url": request.url, "headers": dict(request.headers), **body}
