"""The pages agree with each other and with the code: links, anchors, tables, commands."""

import ast
import re
from pathlib import Path

from agentjobs_async._polling.tracked import Place
from agentjobs_async.batch._run.context import Phase
from agentjobs_async.batch.states import MOVES, State
from tests.checkout import needs
from tests.docs.samples import script
from tests.test_structure import ROOMS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md")]
PAGES += [page for folder in (".github", "docs") for page in sorted((ROOT / folder).rglob("*.md"))]
MODULES = sorted((ROOT / "agentjobs_async").rglob("*.py"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(prose(page)))
    return {title.replace(" ", "-") for title in titles}


def faults_of(page: Path, link: str) -> list[str]:
    """Return what is wrong with a relative link of a page."""
    name, _, anchor = link.partition("#")
    target = page if not name else (page.parent / name).resolve()
    if not (target.exists() and target.is_relative_to(ROOT)):
        return [f"{page.name}: no file {link}"]
    return [f"{page.name}: no heading {link}"] if anchor and anchor not in anchors(target) else []


@needs("benchmarks")  # of which the README shows a picture
def test_links() -> None:
    """A relative link leads to a file of the repository, and its anchor to a heading of that page."""
    links = [(page, link) for page in PAGES for link in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]
    assert len(links) > 50
    assert [fault for page, link in links for fault in faults_of(page, link)] == []


def table_below(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    text = page.read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1]
    lines = [line for line in text.splitlines() if line.startswith(("|", "#"))]
    table = lines[: next((number for number, line in enumerate(lines) if line.startswith("#")), len(lines))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


ARCHITECTURE = ROOT / "docs" / "architecture.md"


def test_states_of_an_item() -> None:
    """The architecture page names every state of an item, and every state that may come after it."""
    rows = table_below(ARCHITECTURE, "The states of an item")
    shown = {state: row for row in rows for state in re.findall(r"`([a-z]+)`", row[0])}
    assert set(shown) == set(State)
    for state in State:
        targets = {target for move in MOVES for target in move.targets if state in move.origins} - {state}
        assert set(re.findall(r"`([a-z]+)`", shown[state][2])) == targets, state


def test_moves_of_a_row() -> None:
    """The table of moves on the architecture page is what its script makes of `MOVES`: run `python docs/moves.py`."""
    rows = table_below(ARCHITECTURE, "The moves of a row")
    assert [row[0] for row in rows] == [move.name for move in MOVES]
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert script("moves").generated(page) == page


def test_places_of_a_tracked_job() -> None:
    """The architecture page names every place of a tracked job, in order."""
    rows = table_below(ARCHITECTURE, "Where a tracked job is")
    assert [row[0].strip("`") for row in rows] == [place.name for place in Place]


def test_phases_of_a_run() -> None:
    """The architecture page names every phase in which a run ends, in order."""
    assert [row[0].strip("`") for row in table_below(ARCHITECTURE, "How a run ends")] == [phase.name for phase in Phase]


def test_modules_exist() -> None:
    """Every module or folder that the architecture page names is there."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    named = {name for name in re.findall(r"`([a-z_/]+)`", text) if "/" in name.strip("/") or name.startswith("_")}
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "agentjobs_async").rglob("*")]
    assert [name for name in sorted(named) if not any(str(path).endswith(f"/{name}") for path in paths)] == []


def test_rooms_are_named() -> None:
    """The architecture page names every room of the structure test's map."""
    rooms = re.findall(r"\w+", FENCED.findall(ARCHITECTURE.read_text(encoding="utf-8"))[0])
    assert set(ROOMS) - {"", "__main__"} <= set(rooms)


@needs("benchmarks")
def test_benchmarks() -> None:
    """A page or module names only benchmarks that exist, and each of these names the pages that name it."""
    scripts = {path.name: path for path in (ROOT / "benchmarks").glob("bench_*.py")}
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in [*PAGES, *MODULES]}
    named = {name: set(re.findall(r"benchmarks/(\w+\.py)", text)) for name, text in texts.items()}
    assert {name: unknown for name, found in named.items() if (unknown := found - set(scripts))} == {}
    for name, path in scripts.items():
        pages = re.findall(r"docs/[\w-]+\.md", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
        assert pages, name
        assert [page for page in pages if name not in named[page]] == [], name


@needs(".ci")
def test_commands_of_contributing() -> None:
    """Every part of `.ci/run` that the contributing page names is one that the script knows."""
    text = (ROOT / "docs" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    parts = set(re.findall(r"`\.ci/run ([a-z]+)`", text)) | {"types", "test", "docs"}
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    branches = re.findall(r"^    ([a-z |]+)\) \w+ \"\$@\"", script, re.MULTILINE)
    assert parts == {name for names in branches for name in names.split(" | ")}
