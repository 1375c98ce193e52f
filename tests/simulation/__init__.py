"""A world from a seed: the package is real, and all that it meets is decided by the seed.

- `world`: one clock, and whose turn it is; `loop`: the loop of one process; `processes`: starts, signals and kills.
- `system`: clocks, names, disks and randomness; `network`: connections in memory.
- `service`: the service over aiohttp's own server, which knows which agents were started; `dates`: as it writes them;
  `documents`: as it shows its jobs; `agreement`: its dialect, headers and keys; `reading`: what its requests say;
  `keys`, `idempotency`: which keys it accepts, and remembers.
- `activities`, `interventions`: what programs do, and a person beside them; `draws`: what a seed decides of all this.
- `programs`: how they do it over the public face; `ledger`: what they are told.
- `snapshots`: the journals that processes leave, and what the package warns of.
- `referee`: whether promises were kept; `rules`: each promise on its own.
- `cases`: a world, run and judged; `shrinking`: the least that breaks the same promise; `found`: what failed once.
- `search`: the command; `findings`: an issue for each broken promise that the nightly search found.
- `postgresql`: worlds of real processes and a real database, fewer and slower; only what befalls them is a seed's.
"""
