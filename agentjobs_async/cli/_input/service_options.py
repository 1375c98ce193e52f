"""The options that name the service, and the project."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import click
from click.core import ParameterSource

from agentjobs_async.cli._input.options import TEXT, Command, Option, Read, joined
from agentjobs_async.cli._input.service import Service, proxy_of

_SERVICE_OPTIONS: Final = {
    "emulated": click.option(
        "--emulator",
        "emulated",
        is_flag=True,
        help="Run on an emulator in this process: no service, key or real agents.",
    ),
    "service_file": click.option(
        "--service",
        "service_file",
        metavar="FILE",
        type=TEXT,
        envvar="AGENTJOBS_SERVICE",
        help="A TOML file: another service, its paths, fields and headers.  [env var: AGENTJOBS_SERVICE]",
    ),
    "base_url": click.option(
        "--base-url", metavar="URL", type=TEXT, help="Address of the service.  [env var: AGENTJOBS_BASE_URL]"
    ),
    "project_id": click.option(
        "--project",
        "project_id",
        metavar="ID",
        type=TEXT,
        help="Project of prompts and bare job ids.  [env var: AGENTJOBS_PROJECT_ID]",
    ),
    "key_file": click.option(
        "--key-file", metavar="FILE", type=TEXT, help="File with the API key.  [else env var: AGENTJOBS_API_KEY]"
    ),
    "proxy": click.option(
        "--proxy",
        metavar="URL",
        type=Read(proxy_of),
        help="Address of an http(s) proxy, without a password; none connects directly."
        "  [else env vars: HTTPS_PROXY, HTTP_PROXY, NO_PROXY]",
    ),
    "ca_file": click.option(
        "--ca-file",
        metavar="FILE",
        type=TEXT,
        help="PEM file of certificate authorities that are trusted beside the system's.",
    ),
    "allow_insecure": click.option(
        "--allow-insecure", is_flag=True, help="Allow plain http: the key crosses the network readable."
    ),
}


def service_options(*, emulator: bool = False) -> Callable[[Command], Command]:
    """Add the options that name the service; the command gets it as `service`."""
    options = {name: option for name, option in _SERVICE_OPTIONS.items() if emulator or name != "emulated"}
    return joined(options, _service_of)


def _service_of(*, service_file: str | None, emulated: bool = False, **given: Any) -> Mapping[str, Any]:
    """Return the service that options name; an emulator leaves the environment alone."""
    source = click.get_current_context().get_parameter_source("service_file")
    if emulated and source is ParameterSource.ENVIRONMENT:
        service_file = None
    return {"service": Service.of(service_file=service_file, emulated=emulated, **given)}


OTHER_SERVICE: Final = click.option(
    "--other-service", is_flag=True, help="The journal belongs to this service from now on, whichever it had before."
)


def project_option(words: str) -> Option:
    """Return `--project` for a command that asks no service; the command gets it as `project_id`."""
    return click.option(
        "--project",
        "project_id",
        metavar="ID",
        type=TEXT,
        envvar="AGENTJOBS_PROJECT_ID",
        help=f"{words}  [env var: AGENTJOBS_PROJECT_ID]",
    )
