"""Comparison of calls to one server in many short turns, so that noise affects all candidates alike."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from measuring import ALL, Call, Figures, Rounds, arguments, chosen, cpu_of, in_own_process, print_table
from server import Server

__all__ = ["compare"]

Candidates = dict[str, Callable[[str, AsyncExitStack], Awaitable[Call]]]
"""Functions that make a call, by name; each is passed the server's address, and a stack for what it opens."""


def compare(
    description: str | None, title: str, candidates: Candidates, base: str, levels: Sequence[int], requests: int
) -> None:
    """Measure the CPU of each candidate's calls, at several numbers in flight; print, save.

    Args:
        description: The benchmark's own.
        title: Of the table.
        candidates: What is compared.
        base: The one that the others are multiples of.
        levels: How many calls are in flight.
        requests: Of each candidate in one turn, unless an option says otherwise.
    """
    parser = arguments(description, rounds=5)
    parser.add_argument("--requests", type=int, default=requests, help="of each candidate in one turn")
    parser.add_argument("--turns", type=int, default=9, help="of each candidate in one round")
    options = parser.parse_args()
    names = chosen(candidates, base, options)
    if options.one:
        measured = _one({name: candidates[name] for name in names}, base, levels, options.requests, options.turns)
        print(json.dumps(asyncio.run(measured)))
        return
    rounds = Rounds(ALL)
    rounds.take([ALL], options.rounds, in_own_process)
    _report(title, base, names, levels, rounds)
    rounds.save(options.json, requests=options.requests, turns=options.turns)


async def _one(candidates: Candidates, base: str, levels: Sequence[int], requests: int, turns: int) -> Figures:
    """Measure all candidates against one server."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(Server()).url
        calls = {name: await candidate(url, stack) for name, candidate in candidates.items()}
        return await _in_turns(calls, base, levels, requests, turns)


async def _in_turns(candidates: dict[str, Call], base: str, levels: Sequence[int], calls: int, turns: int) -> Figures:
    """Measure all candidates in this process, in many short turns.

    Returns, for each candidate and each number of calls in flight, the ratio to the base and the seconds of one call.
    """
    figures: Figures = {}
    for in_flight in levels:
        for call in candidates.values():
            await cpu_of(call, in_flight, calls // 4)
        rounds = Rounds(base)
        for _ in range(turns):
            for name, call in candidates.items():
                rounds.add(name, {"cpu": await cpu_of(call, in_flight, calls)})
        for name in candidates:
            figures[f"{name}, {in_flight}"] = rounds.ratio(name, "cpu")
            figures[f"{name}, {in_flight}, s"] = rounds.median(name, "cpu")
    return figures


def _report(title: str, base: str, names: Sequence[str], levels: Sequence[int], rounds: Rounds) -> None:
    """Print the figures of all rounds."""
    print_table(
        f"{title}, as multiples of: {base}",
        ["", *(f"{level} in flight" for level in levels)],
        [[name, *(f"{rounds.median(ALL, f'{name}, {level}'):.2f}" for level in levels)] for name in names],
    )
    absolute = (f"{rounds.median(ALL, f'{base}, {level}, s') * 1e6:.0f} µs" for level in levels)
    print(f"\n{base}: {', '.join(absolute)} of CPU")
