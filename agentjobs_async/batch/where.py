"""Which rows of a journal are meant."""

from collections.abc import Collection

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._validation import checked_id, checked_name, checked_prompt, checked_span
from agentjobs_async.batch.items import checked_key
from agentjobs_async.batch.states import State

__all__ = ["Where", "checked_state"]


def checked_state(name: object) -> State:
    """Return the state of this name.

    Raises:
        InvalidInputError: There is no such state.
    """
    if not isinstance(name, str) or name not in list(State):
        raise InvalidInputError(f"state must be one of {', '.join(State)}, not {name!r:.100}")
    return State(name)


def _states(names: object) -> frozenset[State] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidInputError(f"states must be a collection such as {{'failed'}}, not {names!r:.100}")
    return frozenset(map(checked_state, names))


@frozen(kw_only=True)
class Where:
    """Which rows of a journal are meant: those that meet every condition that is not `None`.

    Attributes:
        states: Those in one of these states, given by their names or as `State`.
        project: Those of this project.
        text: Those with this text in their key, prompt or error (same case). Each row is read.
        older_than: Those that were changed last more than this many seconds ago, by the journal's clock.
        key: The one with this key, found by an index.
        prefix: Those whose keys begin with this text (same case), found by an index: `Where(prefix="chat-7/")`. There
            are no wildcards.

    Raises:
        InvalidInputError: There is no such state, `project` is no id of 1 to 512 characters, `text` is blank,
            `older_than` is not a finite number above 0, `key` can be no key, or `prefix` does not have 1 to 512
            characters, or contains control characters or surrogates.
    """

    states: Collection[State | str] | None = field(default=None, converter=_states)
    project: str | None = None
    text: str | None = None
    older_than: float | None = None
    key: str | None = None
    prefix: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.project is not None:
            checked_id("project", self.project)
        if self.text is not None:
            checked_prompt("text", self.text)
        if self.older_than is not None:
            checked_span("older_than", self.older_than)
        if self.key is not None:
            checked_key(self.key)
        if self.prefix is not None:
            checked_name("prefix", self.prefix)
