"""One owner's share of a journal's polls per second: all shares together stay within the limit."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from attrs import evolve

from agentjobs_async._polling.pace import PollShare
from agentjobs_async.batch._store import shared
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.writer import Database

if TYPE_CHECKING:  # it imports this module
    from agentjobs_async.batch._store.heartbeat import Heartbeat

_USED: Final = 0.95  # of the limit: polls are under way for unequal times, so that some arrive closer than they left


class PollSharing:
    """Asks for the owner's share of the polls at each beat, while the owner polls.

    All shares together never exceed the limit. An owner that joins polls nothing until the others have given up enough
    for its whole share, with their next beats; a dead owner's share is free once it is taken for dead. An owner that is
    not sure to count as alive polls nothing.

    Args:
        heartbeat: Says whether no other owner takes this one for dead.
    """

    def __init__(self, database: Database, entries: Entries, patience: float, heartbeat: "Heartbeat") -> None:
        self._database = database
        self._entries = entries
        self._patience = patience
        self._heartbeat = heartbeat
        self._on_share: Callable[[PollShare | None], None] | None = None
        self._share: PollShare | None = None
        self._recorded = False

    async def begin(self, on_share: Callable[[PollShare | None], None]) -> None:
        """Call `on_share` with the owner's share, or with `None` for any number of polls, now and at each beat."""
        self._on_share = on_share
        await self.renew()

    def end(self) -> None:
        """Ask for no share any more; the next beat gives up the last one."""
        self._on_share = self._share = None

    async def renew(self) -> None:
        """Ask for the owner's share."""
        if self._on_share is None:
            if self._recorded:
                await self._database.write(shared.stop_polling(self._entries.owner))
                self._recorded = False
            return
        held = self._held()
        await self._ask(held)
        if self._held() < held:  # what it does not use any more can now be recorded as free
            await self._ask(self._held())

    def _held(self) -> float:
        return self._share.per_second if self._share is not None and self._heartbeat.is_sure else 0.0

    async def _ask(self, held: float) -> None:
        """Use the share that the journal grants; `held` is what the owner has used until now, in polls per second."""
        entries = self._entries
        asking = shared.share_polls(entries.owner, held, self._patience, _USED, entries.now())
        self._recorded = True
        # As a claim: the lock of all owners must not wait for this process to commit.
        _, found = await self._database.write(asking, claims=True)
        if self._on_share is None:
            return  # it ended meanwhile
        per_second, number, pollers, moment = tuple(found[0])
        if per_second is None:
            self._share = None
        elif number is not None:
            self._share = self._with_turns(per_second, number / pollers, moment)
        elif not held:
            self._share = PollShare(0.0)
        self._on_share(self._share)

    def _with_turns(self, per_second: float, offset: float, moment: float) -> PollShare:
        """Return a share whose turns follow the journal's clock, which shows `moment`, as those of all owners do.

        `offset` is the place of a turn within the interval, from 0 to 1.
        """
        interval = 1 / per_second
        begin = asyncio.get_running_loop().time() - moment % interval
        return PollShare(per_second, begin + offset * interval, self._heartbeat)


def parts_of(share: PollShare | None, count: int) -> list[PollShare]:
    """Return `count` equal parts of a share, each with every `count`-th turn; no parts without a share."""
    if share is None:
        return []
    turns = [None if share.turn is None else share.turn + number * share.interval for number in range(count)]
    return [evolve(share, per_second=share.per_second / count, turn=turn) for turn in turns]
