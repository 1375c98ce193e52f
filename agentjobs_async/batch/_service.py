"""Which service a journal belongs to: the first run records it, and a run with another one is refused."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from agentjobs_async import AgentJobsSession, Dialect, InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async._validation import is_loopback
from agentjobs_async.session import EMULATOR

if TYPE_CHECKING:  # a command that uses no journal loads no database
    from agentjobs_async.batch._store.opened import Opened
    from agentjobs_async.batch._store.store import Store

_USUAL_PATHS: Final = f"{Dialect().create_path} {Dialect().get_path}"
_MASKED: Final = "***"  # what `AgentJobsSession.mask` leaves of a key


async def settle_service(
    session: AgentJobsSession, opened: "Opened", store: "Store", *, other_service: bool
) -> str | None:
    """Record the service of a session in a journal that has none; refuse the session of another service.

    Return a warning in words where the two differ by the port of a loopback host; `None` otherwise.

    Args:
        session: The session of a run; a test double without a `service` is not checked.
        opened: The open journal.
        store: Its rows.
        other_service: Whether the journal is to belong to the session's service from now on, whichever it had.

    Raises:
        InvalidInputError: The journal belongs to another service; or it is to belong to another one, and other runs,
            workers or durable jobs use it.
        JournalError: The journal can't be read or written.
    """
    service: object = getattr(session, "service", None)
    if not isinstance(service, str):
        return None
    known = (await store.meta()).service
    if known is None or (other_service and known != service):
        if known is not None and await opened.is_used():
            raise InvalidInputError("other runs use the journal with the service that it has: stop them first")
        known = await store.set_service(service, replaces=known is not None)
    if known == service:
        return None
    own, other = _named(known, service), _named(service, known)
    if not _differ_by_port(known, service):
        raise InvalidInputError(
            f"the journal belongs to {own}, not to {other}, which does not know its jobs: continue with {own}, use"
            f" another journal, or pass other_service=True where {other} has taken its place"
        )
    return f"the journal was begun with {own}, and continues with {other}, at another port"


def options_to(service: str | None) -> list[str]:
    """Return the options that lead a command to a recorded service; none without one, or where its key is masked.

    A service with other paths than the usual one has a service file, whose place is not known: FILE stands for it.
    """
    if service is None:
        return []
    if service == EMULATOR:
        return ["--emulator"]
    address, _, paths = service.partition(" ")
    if paths != _USUAL_PATHS:
        return ["--service", "FILE"]
    if _MASKED in address:
        return []  # it holds the key
    url = urlsplit(address)
    is_insecure = url.scheme == "http" and not is_loopback(url.hostname or "")
    return ["--base-url", address, *["--allow-insecure"] * is_insecure]


def _address_of(service: str) -> str:
    return service.partition(" ")[0]


def _named(service: str, other: str) -> str:
    """Return a service in words: by its address where that tells it from the other one, else with its paths."""
    if service == EMULATOR:
        return "an emulator"
    return one_line(service if _address_of(service) == _address_of(other) else _address_of(service), 300)


def _differ_by_port(one: str, other: str) -> bool:
    """Return whether two services differ by nothing but the ports of one loopback host."""
    return EMULATOR not in {one, other} and _without_port(one) == _without_port(other)


def _without_port(service: str) -> tuple[str, ...]:
    """Return the parts of a service, without the port of a loopback host."""
    address, _, paths = service.partition(" ")
    url = urlsplit(address)
    host = url.hostname or ""
    return url.scheme, host if is_loopback(host) else url.netloc, url.path, paths
