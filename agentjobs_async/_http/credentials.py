"""What each request is sent with that nobody else may read: the key of the moment, and the user's own headers."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import Context
from copy import copy
from typing import Final
from weakref import WeakSet

from agentjobs_async._dialect.dialect import Dialect
from agentjobs_async._dialect.header_fields import SecretText, check_names, checked_headers
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.masking import Masker
from agentjobs_async._loop.tasks import is_cancelled
from agentjobs_async._text import one_line
from agentjobs_async.errors import AgentJobsError, InvalidInputError, NotSentError, SessionClosedError, describe
from agentjobs_async.telemetry.no_hooks import Hooks

KeyOf = Callable[[], str | Awaitable[str]]
"""Returns the key of the moment: a plain or an async callable."""

MOST_KEYS: Final = 3
"""With how many keys a request is sent, where the service refuses one after the other."""

_KEPT_KEYS: Final = 16  # that stay masked after they were replaced
_MIN_MASKED_LENGTH: Final = 8  # characters of a header's value that is not marked as a secret
_SCHEME: Final = re.compile(r"(?:basic|bearer|token|api-?key) +(?=\S)", re.IGNORECASE)
_RAISED_BYTES: Final = 65_536  # of the text of what a callable raised: far more than is shown of it
_CLOSING_SECONDS: Final = 1.0  # for a callable that is cancelled


class OwnHeaders:
    """The user's own header fields, held in a closure as a key is.

    Args:
        fields: The checked fields by their names.
    """

    __slots__ = ("_reveal", "maskers")

    def __init__(self, fields: Mapping[str, str]) -> None:
        secrets = [text for value in fields.values() for text in _secrets_of(value)]
        plain = {str.__str__(name): str.__str__(value) for name, value in fields.items()}  # of an enum too: the text
        self._reveal: Callable[[], dict[str, str]] = lambda: plain
        self.maskers = tuple(map(Masker, dict.fromkeys(map(str.__str__, secrets))))

    def check_names(self, taken: Collection[str]) -> None:
        """Check that no other setting sets one of these fields.

        Raises:
            InvalidInputError: One of `taken` is among them.
        """
        check_names(self._reveal(), taken)

    def merged(self, headers: dict[str, str]) -> dict[str, str]:
        """Return the fields of one request: these, and the user's own."""
        return headers | own if (own := self._reveal()) else headers


def checked_own_headers(headers: object) -> OwnHeaders | InvalidInputError:
    """Return the user's own headers, or the error that refuses them, without the frames that hold their values."""
    try:
        return OwnHeaders(checked_headers(headers))
    except InvalidInputError as error:
        return error.with_traceback(None)


def is_secret(value: str) -> bool:
    """Return whether the value of a header is masked: it is long enough, or marked as a secret."""
    return len(value) >= _MIN_MASKED_LENGTH or isinstance(value, SecretText)


def _secrets_of(value: str) -> list[str]:
    """Return the texts of a value that are masked: all of it, and what follows the name of a scheme."""
    if not is_secret(value):
        return []
    after = _SCHEME.match(value)
    rest = value[after.end() :] if after is not None else ""
    return [value, rest] if len(rest) >= _MIN_MASKED_LENGTH else [value]


class Credentials:
    """The key of the moment, and the fields of each request. All of them are masked.

    A key that a callable returns is kept until the service refuses it with 401; then the callable is asked once for all
    calls under way.

    Args:
        key: The key, or the callable.
        own: The user's own headers.
        dialect: How the key is sent.
        hooks: They get an event when the callable was asked anew.
        others: The maskers of secrets that no request of the service holds, such as the password of a proxy.

    Attributes:
        key: The key of the moment; `None` before a callable was asked for the first time.
        changes: How often the key has been replaced by another one.
    """

    def __init__(
        self, key: ApiKey | KeyOf, own: OwnHeaders, dialect: Dialect, hooks: Hooks, others: tuple[Masker, ...] = ()
    ) -> None:
        self._key_of = None if isinstance(key, ApiKey) else key
        self.key: ApiKey | None = key if isinstance(key, ApiKey) else None
        self.changes = 0
        self._own = own
        self._header, self._format = dialect.key_header, dialect.key_format
        self._hooks = hooks
        self._recent = deque[ApiKey](maxlen=_KEPT_KEYS)
        self._alive = WeakSet[ApiKey]()  # also those of calls under way
        self._key_maskers: tuple[Masker, ...] = ()
        self._other_maskers = (*own.maskers, *others)
        self._maskers = self._other_maskers
        self._asking: asyncio.Task[ApiKey | AgentJobsError] | None = None
        self._number = self._waiting = 0  # of the asking, and how many wait for it
        self._left = set[asyncio.Task[ApiKey | AgentJobsError]]()  # askings that were cancelled, until they end
        if self.key is not None:
            self._set(self.key)

    def headers(self, key: ApiKey, /, **more: str) -> dict[str, str]:
        """Return the fields of one request under a key, `more` included. No frame may keep them."""
        more[self._header] = key.formatted(self._format)
        return self._own.merged(more)

    def mask(self, text: str) -> str:
        """Return `text` with each secret, plain, percent-encoded, JSON-escaped or in base64, replaced by `***`."""
        for masker in self._maskers:
            text = masker.mask(text)
        return text

    def mask_keys(self, text: str) -> str:
        """Return `text` with the keys alone masked."""
        for masker in self._key_maskers:
            text = masker.mask(text)
        return text

    def may_be_in(self, body: bytes) -> bool:
        """Return whether `body` may hold a secret in one of these forms. It is cheap; only `False` is certain."""
        for masker in self._maskers:  # noqa: SIM110 - run for every response, and any() takes three times as long
            if masker.may_be_in(body):
                return True
        return False

    @property
    def may_change(self) -> bool:
        """Whether a callable gives the key."""
        return self._key_of is not None

    async def current(self) -> ApiKey | AgentJobsError:
        """Return the key of the moment, or the error of a callable that gives none."""
        return self.key if self.key is not None else await self._asked()

    async def newer(self, refused: ApiKey) -> ApiKey | AgentJobsError | None:
        """Return the key that has replaced one which the service refused with 401.

        Return `None` where the callable gives the same one, or there is no callable; the error of one that gives none.
        """
        if self._key_of is None:
            return None
        if self.key is refused:
            found = await self._asked()
            if isinstance(found, AgentJobsError):
                return found
        return None if self.key is None or self.key is refused else self.key

    async def _asked(self) -> ApiKey | AgentJobsError:
        """Ask the callable, once for all that wait; a caller that is cancelled leaves it to the others, if any.

        Each gets an error of its own: whoever raises it adds frames, a job and an outcome to it.
        """
        task = self._asking or self._begun()
        self._waiting += 1
        try:
            await asyncio.wait([task])
        finally:
            self._waiting -= 1
            if not self._waiting and task is self._asking:
                self._leave(task)
        if task.cancelled():
            return SessionClosedError("the session was closed meanwhile")
        found = task.result()
        return copy(found) if isinstance(found, AgentJobsError) else found

    def _begun(self) -> asyncio.Task[ApiKey | AgentJobsError]:
        self._number += 1
        # In an empty context: it asks for all calls, and keeps no variable of one of them.
        task = Context().run(asyncio.get_running_loop().create_task, self._ask(self._number))
        self._asking = None if task.done() else task  # a loop with eager tasks may have run it already
        return task

    def _leave(self, task: asyncio.Task[ApiKey | AgentJobsError]) -> None:
        """Cancel an asking for which nobody waits any more; the next call asks anew, even if it swallows that."""
        self._asking = None
        self._number += 1
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        task.cancel()

    async def _ask(self, number: int) -> ApiKey | AgentJobsError:
        before = self.key
        try:
            found = await self._asked_key()
        finally:
            is_left = number != self._number
            if not is_left:
                self._asking = None
        if is_left:
            return found
        error = found if isinstance(found, AgentJobsError) else None
        changed = isinstance(found, ApiKey) and (before is None or not found.is_same(before))
        if isinstance(found, ApiKey) and changed:
            self._set(found)
        if before is not None:
            self.changes += changed
            self._hooks.key_requested(error, changed=changed)
        return found if before is None or changed or error is not None else before

    async def _asked_key(self) -> ApiKey | AgentJobsError:
        # Errors are returned without causes and frames: those of the callable may hold the key.
        if self._key_of is None:
            return InvalidInputError("there is no key")
        try:
            found = self._key_of()
            text = await found if isinstance(found, Awaitable) else found
        except (KeyboardInterrupt, SystemExit):
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return NotSentError("nothing was sent: the callable api_key was cancelled", "key")
        except BaseException as error:  # noqa: BLE001 - whatever the user's callable raises, there is no key
            # Masked before it is cut: a part of a key can't be masked.
            raised = one_line(self.mask(describe(error, _RAISED_BYTES)))
            return NotSentError(f"nothing was sent: the callable api_key raised {raised}", "key")
        try:
            return ApiKey(text)
        except InvalidInputError as error:
            defect = error.message
        return InvalidInputError(f"the callable api_key returned no key: {defect}")

    def _set(self, key: ApiKey) -> None:
        self.key = key
        for same in [one for one in self._recent if one.is_same(key)]:  # a key that comes again counts once
            self._recent.remove(same)
        self._recent.append(key)
        self._alive.add(key)
        self._key_maskers = tuple(one.masker for one in self._alive if one.masker is not None)
        self._maskers = (*self._key_maskers, *self._other_maskers)

    async def aclose(self) -> None:
        """Cancel the asking under way; a callable that swallows its cancellation is left behind."""
        if self._asking is not None:
            self._leave(self._asking)
        if self._left:
            await asyncio.wait(self._left, timeout=_CLOSING_SECONDS)
