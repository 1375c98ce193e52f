"""`agentjobs serve`: the live page of a journal on a server of its own."""

import ipaddress
import os
from contextlib import AsyncExitStack
from secrets import token_urlsafe
from socket import gethostname
from typing import Final

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal
from agentjobs_async.cli.log_lines import LogLines
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.process import Context
from agentjobs_async.report import board, board_token
from agentjobs_async.report.serving import LOOPBACK, running

__all__ = ["serve"]

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what the user gave; and what opens it here


async def serve(context: Context, journal: str, host: str, port: int, *, allow_actions: bool, prompts: bool) -> int:
    """Serve the page of a journal until a signal stops it.

    Args:
        context: The command's output and signals.
        journal: The file or URL.
        host: The address to listen on.
        port: The port; 0 chooses a free one.
        allow_actions: Whether the page may change items.
        prompts: Whether the page has the prompts.

    Raises:
        InvalidInputError: The address is taken, or is not one of this machine.
        JournalError: The journal can't be read.
    """
    is_loopback = _is_loopback(host)
    token = None if is_loopback else token_urlsafe()
    hosts = LOOPBACK if is_loopback else (*LOOPBACK, host, gethostname())
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(Journal.open(journal, read_only=True))
        app = board(opened, allow_actions=allow_actions, token=token, hosts=(*hosts, host), prompts=prompts)
        try:
            bound = await stack.enter_async_context(running(app, host, port))
        except OSError as error:
            defect = f"{host} port {port}: {_cause(error)}; give another --port (0 takes any that is free) or --host"
        else:
            stack.enter_context(LogLines(context.screen, "agentjobs_async.report").shown())
            secret = f"#token={board_token(app)}" if allow_actions or token else ""
            address = f"http://{_in_address(_ANY.get(host, host))}:{bound}/{secret}"
            _announce(context, opened.name, address, is_loopback=is_loopback)
            await context.interruption.stop_requested()
            return ExitCode.COMPLETED
    raise InvalidInputError(defect)


def _announce(context: Context, name: str, address: str, *, is_loopback: bool) -> None:
    context.screen.notice(f"The live page of {name}; Ctrl-C stops it.")
    if not is_loopback:
        context.screen.notice("Other machines reach it, unencrypted: anyone with this address can read the journal.")
    context.screen.raw_line(address)


def _cause(error: OSError) -> str:
    # asyncio adds the address to the words of a system error; a name that is unknown has a number of its own.
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
