"""What does the import of this package cost, and that of its rivals?

Each candidate is imported in a process of its own, after aiohttp, which an asynchronous service has loaded anyway. CPU,
with compiled modules; the base is the import of aiohttp itself. The package loads its names when they are first used: a
session brings all that a create and a wait use, which load nothing more (tests/test_structure.py).

docs/why.md names it.

    pip install -e '.[bench]'
    python benchmarks/bench_import.py
"""

import json
import sys
from compileall import compile_dir
from importlib import import_module
from pathlib import Path
from time import process_time

from measuring import Figures, Rounds, arguments, chosen, in_own_process, parsed, print_table

BASE = "aiohttp"
CANDIDATES = {
    BASE: ["aiohttp"],
    "agentjobs_async": ["agentjobs_async:AgentJobsSession"],
    "agentjobs_async, all names": ["agentjobs_async:*"],
    "azure-core": ["azure.core.polling", "azure.core.pipeline.transport"],
    "google-api-core": ["google.api_core.future.polling"],
    "aiobotocore": ["aiobotocore.session"],
}


def one(candidate: str) -> Figures:
    """Import one candidate."""
    if candidate != BASE:
        import_module(BASE)
    loaded, before = len(sys.modules), process_time()
    for target in CANDIDATES[candidate]:
        name, _, wanted = target.partition(":")
        module = import_module(name)
        for each in module.__all__ if wanted == "*" else filter(None, [wanted]):
            getattr(module, each)
    return {"cpu": process_time() - before, "modules": float(len(sys.modules) - loaded)}


def main() -> None:
    """Measure, print, save."""
    options = parsed(arguments(__doc__, rounds=7))
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    names = chosen(CANDIDATES, BASE, options)
    home = Path(str(import_module("agentjobs_async").__file__)).parent
    compile_dir(home, quiet=1)  # Python may be told to write none
    rounds = Rounds(BASE)
    rounds.measure(names, options.rounds, in_own_process)
    rows = [
        [
            name,
            f"{rounds.median(name, 'cpu') * 1e3:.0f} ms",
            f"{rounds.ratio(name, 'cpu'):.2f}",
            f"{rounds.median(name, 'modules'):.0f}",
        ]
        for name in names
    ]
    print_table("Import on top of aiohttp", ["", "CPU", "ratio", "modules"], rows)
    rounds.save(options)


if __name__ == "__main__":
    main()
