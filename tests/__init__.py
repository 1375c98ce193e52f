"""The tests, in folders as the rooms of the package, and what they share.

- `rows`: tables as one test, which names the rows that fail; `until`: what no event announces; `ids`: made-up ids.
- `polled`: get-job callables in memory, `REF`, `clock`, `every` and `never`; `past`: histories of polls.
- `scripted`: a server that answers as told; `held`: an emulator whose creates wait; `aged`: a journal of past jobs.
- `postgresql`: the server of all test processes; `conftest.py` has the fixtures of its databases.
- `forked`: child processes without a start of their own; `cli.stage`: the command line in one, or on a terminal.
- `batch.stage`: runs without a network; `engines.stage`: workers of a queue; `report.served`: a live page.
- `contract.ways`: the three ways to wait; `contract.tables`: faults; `contract.sinks`: where a key could come out.
- `browser`, `extras`: what not every environment has, and the commands that bring it; `flaky`: the gate's second try.
"""
