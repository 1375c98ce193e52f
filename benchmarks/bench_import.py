"""What does the import of this package cost, and that of its rivals?

Each candidate is imported in a process of its own, after aiohttp, which an asynchronous service has loaded anyway. CPU,
with compiled modules; the base is the import of aiohttp itself.
"""

import json
import sys
from importlib import import_module
from time import process_time

from measuring import Figures, Rounds, arguments, chosen, in_own_process, print_table

BASE = "aiohttp"
CANDIDATES = {
    BASE: ["aiohttp"],
    "agentjobs_async": ["agentjobs_async"],
    "azure-core": ["azure.core.polling", "azure.core.pipeline.transport"],
    "google-api-core": ["google.api_core.future.polling"],
    "aiobotocore": ["aiobotocore.session"],
}


def one(candidate: str) -> Figures:
    """Import one candidate."""
    if candidate != BASE:
        import_module(BASE)
    loaded, before = len(sys.modules), process_time()
    for module in CANDIDATES[candidate]:
        import_module(module)
    return {"cpu": process_time() - before, "modules": float(len(sys.modules) - loaded)}


def main() -> None:
    """Measure, print, save."""
    options = arguments(__doc__, rounds=7).parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    names = chosen(CANDIDATES, BASE, options)
    rounds = Rounds(BASE)
    rounds.take(names, options.rounds, in_own_process)
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
    rounds.save(options.json)


if __name__ == "__main__":
    main()
