"""Writes the table of the moves of a row into architecture.md: `python docs/moves.py`."""

from collections.abc import Collection
from pathlib import Path

from agentjobs_async.batch.states import MOVES, Move, State

TARGET = Path(__file__).parent / "architecture.md"
HEADING = "### The moves of a row\n"
HEAD = """
| move | from | to | matches | sets | clears |
|---|---|---|---|---|---|
"""


def table() -> str:
    """Return a line for each move, in the order of `MOVES`."""
    return HEAD + "".join(f"| {' | '.join(_cells(move))} |\n" for move in MOVES)


def _cells(move: Move) -> list[str]:
    clears = "all that belongs to a try; the row is kept as an earlier one" if move.begins_try else _words(move.clears)
    states = (_words([state for state in State if state in found]) for found in (move.origins, move.targets))
    return [move.name, *states, _words(move.matches), _words(move.times), clears]


def _words(names: Collection[str]) -> str:
    return " ".join(f"`{name}`" for name in (names if isinstance(names, list) else sorted(names)))


def generated(page: str) -> str:
    """Return the page with the present table as the first one below its heading."""
    before, _, after = page.partition(HEADING)
    words, _, rest = after.partition(HEAD)
    return before + HEADING + words + table() + rest[rest.index("\n\n") + 1 :]


if __name__ == "__main__":
    TARGET.write_text(generated(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
