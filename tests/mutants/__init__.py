"""Faults of the kind that a maintainer makes, each put into a copy of the package, and what finds them.

- `mutant`: one fault; `sending`, `watching`: the faults; `catalogue`: all of them, and what is wrong with it.
- `trial`: a fault in a copy of the checkout, searched by simulated worlds and tested by its room.
- `hunt`: the process that searches; `run`: the command.
"""
