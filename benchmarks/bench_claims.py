"""What does a claim of a shared journal cost, and does it grow with the rows of the journal?

One owner claims a row and releases it, repeatedly, on a real PostgreSQL: milliseconds of wall time of one `claim`.

- free: under `create_rate` and `max_active`, with room;
- held back: the same without room under the rate, as when workers ask again every few seconds;
- busy: 1,000 rows are active, 2,000 were sent within the hour, 500 became unknown lately, and there is room.
"""

import asyncio
import json
import sys
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

from measuring import Figures, arguments, in_own_process, print_table

from agentjobs_async.batch import BatchItem, FleetLimits, Journal, Rate

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.postgresql import Server, execute

CASES = {
    "free": FleetLimits(max_active=50, create_rate=Rate(100, per=3600)),
    "held back": FleetLimits(max_active=50, create_rate=Rate(20, per=3600)),
    "busy": FleetLimits(max_active=5_000, create_rate=Rate(10_000, per=3600)),
}
_AGES = {"free": 50, "held back": 50, "busy": 2_000}
_ROWS = """
INSERT INTO agentjobs_entries (key, prompt, project_id, state, job_id, sent_at, updated_at, changed_at)
SELECT 'old-' || n, 'Document page ' || n, 'docs', 'completed', 'job_' || n,
    date_part('epoch', clock_timestamp()) - 7200 - n / 10.0, date_part('epoch', clock_timestamp()) - n / 10.0, 0
FROM generate_series(1, {rows}) AS n
"""
_WITHIN = """
INSERT INTO agentjobs_entries (key, prompt, project_id, state, job_id, sent_at, updated_at, changed_at)
SELECT 'new-' || n, 'p', 'docs', 'completed', 'job', date_part('epoch', clock_timestamp()) - n, 0, 0
FROM generate_series(1, {within}) AS n
"""
_ACTIVE = """
INSERT INTO agentjobs_entries (key, prompt, project_id, state, job_id, sent_at, updated_at, changed_at)
SELECT 'active-' || n, 'p', 'docs', CASE WHEN n > 500 THEN 'active' ELSE 'unknown' END,
    CASE WHEN n > 500 THEN 'job' END, 0, date_part('epoch', clock_timestamp()), 0 FROM generate_series(1, 1500) AS n
"""


async def measured(address: str, case: str, rows: int, claims: int) -> Figures:
    """Measure one case in an empty database."""
    async with Journal.open(address) as journal:
        await journal.add([BatchItem("todo", "p")])
        execute(address, _ROWS.format(rows=rows))
        execute(address, _WITHIN.format(within=_AGES[case]))
        if case == "busy":
            execute(address, _ACTIVE)
        execute(address, "VACUUM ANALYZE agentjobs_entries")
        await journal.set_limits(CASES[case])
        seconds = [await _one_claim(journal) for _ in range(claims)][5:]
    return {"median": median(seconds), "p99": quantiles(seconds, n=100)[98]}


async def _one_claim(journal: Journal) -> float:
    started = perf_counter()
    claim = await journal._entries.claim("todo", "docs")
    seconds = perf_counter() - started
    if isinstance(claim, str):
        await journal._entries.release_claim("todo", None, claim=claim)
    return seconds


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[0, 100_000, 500_000, 1_000_000])
    parser.add_argument("--claims", type=int, default=100, help="claims of each case (default: %(default)s)")
    options = parser.parse_args()
    if options.one:
        case, rows = options.one
        with Server() as server, server.database() as address:
            print(json.dumps(asyncio.run(measured(address, case, int(rows), options.claims))))
        return
    cases = [case for case in CASES if options.only is None or case in options.only]
    found = {(rows, case): in_own_process(case, str(rows)) for rows in options.rows for case in cases}
    print(file=sys.stderr)
    print_table(
        "One claim of a journal on PostgreSQL, ms: median (99th percentile)",
        ["rows", *cases],
        [
            [f"{rows:,}"]
            + [f"{found[rows, case]['median'] * 1e3:.1f} ({found[rows, case]['p99'] * 1e3:.1f})" for case in cases]
            for rows in options.rows
        ],
    )
    if options.json is not None:
        figures = {f"{rows} {case}": value for (rows, case), value in found.items()}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
