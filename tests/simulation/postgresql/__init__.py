"""Real worlds: processes that share a journal on PostgreSQL, killed, stopped and cut off as a seed decides.

- `plan`: what a seed decides; `program`: what a process does over the public face, and what it reports.
- `service`: the service, which counts; `world`: the processes, their troubles, and all that was recorded.
- `records`: what was recorded; `referee`, `limits`: whether promises were kept; `command`: the search.

Real processes do not repeat to the byte: a seed repeats what was decided, and a finding keeps its files.
"""
