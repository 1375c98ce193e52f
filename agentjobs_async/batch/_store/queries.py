"""Which rows of a journal are read."""

import sys
from collections.abc import Collection, Iterator, Sequence

from attrs import frozen
from sqlalchemy import ColumnElement, and_, case, func, literal, literal_column, or_, select, true, tuple_

from agentjobs_async._validation import checked_instance
from agentjobs_async.batch._database.schema import FOLLOWED, ITEMS, TRIES, Moment, seconds_of
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch._store.statements import in_states
from agentjobs_async.batch.states import State
from agentjobs_async.batch.where import Where

PAGE_ROWS = 500  # few enough that the loop stands still for some milliseconds only
_ROW = ITEMS.c
_LAST_CHARACTER = chr(sys.maxunicode)
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000  # no text that is stored has what lies between


@frozen(kw_only=True)
class Query:
    """The next rows in the order of their numbers that meet every condition that is not `None`.

    Attributes:
        where: A user's conditions.
        keys: They have one of some hundred keys.
        numbers: They have one of some hundred numbers.
        after: Their numbers are above this one.
        until: Their numbers are at most this one.
        states: They are in one of these states.
        project_id: They belong to this project.
        fewer_tries: They have had fewer tries than this.
        is_followed: They are durable jobs that are followed; `False` for all others.
        has_follower: Somebody follows them at present; `False` for nobody.
        no_try_after: No earlier try of theirs was kept after that of this number: they were not planned once more
            since then.
        owned_by_others_than: They have an owner, and another one than this.
        size: How many at the most; `None` for all.
    """

    where: Where | None = None
    keys: Collection[str] | None = None
    numbers: Collection[int] | None = None
    after: int = 0
    until: int | None = None
    states: Collection[State] | None = None
    project_id: str | None = None
    fewer_tries: int | None = None
    is_followed: bool | None = None
    has_follower: bool | None = None
    no_try_after: int | None = None
    owned_by_others_than: str | None = None
    size: int | None = PAGE_ROWS

    def conditions(self, now: Moment) -> ColumnElement[bool]:
        """Return what rows have to meet.

        Raises:
            InvalidInputError: `where` is no `Where`.
        """
        checked_instance("where", self.where, Where)
        others = and_(true(), *_of_where(self.where, now), *self._of_numbers(), *self._of_state(), *self._of_owners())
        if not (by_key := list(_of_key(self.where))):
            return others
        return and_(*by_key, _without_index(others))

    def _of_numbers(self) -> Iterator[ColumnElement[bool]]:
        if self.keys is not None:
            yield _ROW.key.in_(self.keys)
        if self.numbers is not None:
            yield _ROW.number.in_(self.numbers)
        if self.after:
            yield _ROW.number > self.after
        if self.until is not None:
            yield _ROW.number <= self.until

    def _of_state(self) -> Iterator[ColumnElement[bool]]:
        if self.states is not None:
            yield in_states(self.states)
        if self.project_id is not None:
            yield _ROW.project_id == self.project_id
        if self.fewer_tries is not None:
            yield _ROW.tries < self.fewer_tries
        if self.no_try_after is not None:
            later = select(TRIES.c.number).where(TRIES.c.item == _ROW.number, TRIES.c.number > self.no_try_after)
            yield or_(_ROW.tries == 1, ~later.exists())

    def _of_owners(self) -> Iterator[ColumnElement[bool]]:
        if self.is_followed is not None:
            yield FOLLOWED if self.is_followed else ~FOLLOWED
        if self.has_follower is not None:
            yield _ROW.follower.is_not(None) if self.has_follower else _ROW.follower.is_(None)
        if self.owned_by_others_than is not None:
            yield _ROW.owner != self.owned_by_others_than


def as_found(rows: Sequence[JournalRow]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return which rows some hundred are, by their numbers; and that they have not moved on since they were read."""
    found = [(row.number, row.tries, row.state) for row in rows]
    return _ROW.number.in_([row.number for row in rows]), tuple_(_ROW.number, _ROW.tries, _ROW.state).in_(found)


def _without_index(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return a condition, met by the same rows, for which a database uses no index: no index has a CASE.

    So rows are found by their keys. To old statistics, and to SQLite, which has none, the index of states may look as
    good as that.
    """
    return case((condition, literal_column("1")), else_=literal_column("0")) == literal_column("1")


def _of_key(where: Where | None) -> Iterator[ColumnElement[bool]]:
    if where is None:
        return
    if where.key is not None:
        yield _ROW.key == where.key
    if where.prefix is not None:
        yield _ROW.key >= where.prefix
        if (end := _after_all_with(where.prefix)) is not None:
            yield _ROW.key < end


def _after_all_with(prefix: str) -> str | None:
    """Return the first text, in the order of code points, after all that begin with `prefix`; `None` without one."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    number = ord(kept[-1]) + 1
    return kept[:-1] + chr(_AFTER_SURROGATES if number == _FIRST_SURROGATE else number)


def _of_where(where: Where | None, now: Moment) -> Iterator[ColumnElement[bool]]:
    if where is None:
        return
    if where.states is not None:
        yield _ROW.state.in_(sorted(where.states))
    if where.project is not None:
        yield _ROW.project_id == where.project
    if where.text is not None:
        # What `replace` changes holds the text: both databases have it, and in both it tells cases apart, as LIKE does
        # on one of them only.
        columns = (_ROW.key, _ROW.prompt, _ROW.error)
        yield or_(*(func.replace(column, literal(where.text), "") != column for column in columns))
    if where.older_than is not None:
        yield _ROW.updated_at < seconds_of(now) - where.older_than
