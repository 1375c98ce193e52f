"""The tests, in folders as the rooms of the package, and what they share.

- `rows`: tables as one test, which names the rows that fail; `until`: waits for conditions; `ids`: made-up ids.
- `modules`: the sources of the package, and what each imports.
- `checkout`: the root of the repository, a copy of it, and the mark of tests that need it.
- `http.tls`: a server that wants the certificates of its clients.
- `polled`: get-job callables in memory, `REF`, `clock`, `every` and `never`; `past`: histories of polls.
- `scripted`: a server that answers byte for byte; `held`: an emulator whose creates wait; `aged`: an old journal.
- `postgresql`: the server of all test processes; `conftest.py` has the fixtures of its databases.
- `forked`: child processes without a start of their own; `cli.stage`: the command line in one, or on a terminal.
- `batch.stage`: runs without a network; `batch.silence`: silent owners; `batch.wire`: a silent database.
- `engines.stage`: workers of a queue; `report.served`: a live page.
- `docs.samples`: the code on the pages; `docs.command`: `agentjobs` for their shells, each call a fork.
- `contract.ways`: the three ways to wait; `contract.tables`: faults; `contract.sinks`: where a key could come out.
- `contract.children`: scripts in processes of their own; `recipes.processes`: the recipes in such.
- `simulation`: the package in a world that a seed decides; its `__init__` lists the parts.
- `mutants`: faults put into copies of the package, and what finds them; its `__init__` lists the parts.
- `browser`, `extras`: what not every environment has, and the commands that bring it; `flaky`: the gate's second try.
"""
