"""A world from a seed: the package is real, and all that it meets is decided by the seed.

- `world`: one clock, and whose turn it is; `loop`: the loop of one process; `processes`: starts, signals and kills.
- `system`: clocks, names, disks and randomness; `network`: connections in memory.
- `service`: the service over aiohttp's own server, which knows which agents were started.
- `sessions`: what the sessions of a program have of their own; `dates`: dates as services write them.
- `programs`: what programs do over the public face; `ledger`: what they are, and what they are told;
  `interventions`: what a person does about rows meanwhile.
- `snapshots`: the journals that processes leave, and what the package warns of.
- `referee`: whether promises were kept; `rules`: each promise on its own.
- `findings`: an issue for each broken promise that the nightly search found.
- `cases`: a world from a seed, run and shrunk; `found`: what failed once; `search`: the command.
- `postgresql`: worlds of real processes and a real database, fewer and slower; only what befalls them is a seed's.
"""
