"""Writes llms.txt, a summary of the pages for language models: `python docs/llms.py`.

The part above the heading `Pages` is written by hand, and stays; what is below it comes from the pages.
"""

import re
from pathlib import Path

DOCS = Path(__file__).parent
TARGET = DOCS / "llms.txt"
HEADING = "## Pages\n"
LEFT_OUT = frozenset({"architecture", "CONTRIBUTING", "api"})
"""Pages for contributors, and the one that only lists names."""


def summary(page: Path) -> str:
    """Return a page's title, what it is for, and its first sample."""
    text = page.read_text(encoding="utf-8").partition("\n## ")[0]
    title, _, rest = text.partition("\n")
    purpose = re.split(r"\n\n", rest.strip())[0].replace("\n", " ").removesuffix(":").rstrip(".")
    sample = re.search(r"^```(?:python|sh)\n.*?^```$", text, re.DOTALL | re.MULTILINE)
    return f"### [{title.removeprefix('# ')}]({page.relative_to(DOCS)})\n\n{purpose}.\n" + (
        f"\n{sample[0]}\n" if sample else ""
    )


def generated(current: str) -> str:
    """Return the text of llms.txt: the part of `current` that is written by hand, and a summary of each page."""
    by_hand = current.partition(HEADING)[0]
    listed = re.findall(
        r"^([\w/-]+)$", (DOCS / "index.md").read_text(encoding="utf-8").rpartition("toctree}")[2], re.MULTILINE
    )
    pages = [DOCS / f"{name}.md" for name in ["index", *listed] if name not in LEFT_OUT]
    return by_hand + "\n".join([HEADING, *map(summary, pages)])


if __name__ == "__main__":
    TARGET.write_text(generated(TARGET.read_text(encoding="utf-8")), encoding="utf-8")
