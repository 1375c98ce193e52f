import base64
import gzip
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.report import html
from tests.report.stage import OUTCOMES, answered_late, fail_all, fail_hostile, report_of, run_some


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def document_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<template id="data">(.*?)</template>', page, re.DOTALL)
    assert found is not None
    return [json.loads(line) for line in gzip.decompress(base64.b64decode(found[1])).splitlines()]


async def test_policy_allows_only_its_own(tmp_path: Path) -> None:
    """The policy names the hashes of the one style and the one script, and nothing else may be fetched or run."""
    await run_some(tmp_path / "run.db")
    page = await report_of(tmp_path / "run.db")
    elements = Elements(page)
    policy = next(found["content"] or "" for _, found in elements.found if found.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    own = re.findall(r"<(style|script)>(.*?)</\1>", page, re.DOTALL)
    assert [tag for tag, _ in own] == ["style", "script"]
    for tag, text in own:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not any(name.startswith("on") or name == "style" for _, found in elements.found for name in found)


async def test_hostile_items_are_text(tmp_path: Path) -> None:
    """Hostile prompts and keys add no element to the page."""
    await fail_hostile(tmp_path / "hostile.db")
    page = await report_of(tmp_path / "hostile.db")
    tags = [tag for tag, _ in Elements(page).found]
    assert tags.count("script") == tags.count("template") == 1
    assert not {"img", "iframe", "b"} & set(tags)


async def test_without_scripts(tmp_path: Path) -> None:
    """The tiles, and the unknown and failed items with what to do about them, stand in plain HTML."""
    await run_some(tmp_path / "run.db")
    page = await report_of(tmp_path / "run.db")
    plain = page[page.index('id="plain"') : page.index('<template id="data">')]
    assert re.findall(r'class="key">([^<]+)', plain) == ["page-4", "page-3"]
    assert "--send-again KEY" in re.sub("<[^>]+>", "", plain)
    assert "Look in project docs, for a job created about " in plain
    assert "the agent failed" in plain
    assert "Document the page 3" in unescape(plain)
    for state in ("unknown", "failed", "completed"):
        count = OUTCOMES.count(state)
        assert f'data-tile="{state}"><span class="name">{state}</span><span class="value">{count}</span>' in page


async def test_answered_late(tmp_path: Path) -> None:
    """A report names the creates that were answered late, with what to do; without any, it shows nothing of it."""
    path = tmp_path / "run.db"
    async with Journal.open(path) as journal:
        await journal.add([BatchItem("<b>", "Document it", "docs")])
    assert 'id="late" aria-label="Answered late" hidden' in await report_of(path)
    assert "Answered late" not in await report_of(path, format="markdown")
    await answered_late(path, "<b>", "job_late")
    page, summary = await report_of(path), await report_of(path, format="markdown")
    assert "&lt;b&gt;: try 1 is active, docs~.job_late; try 2 is planned" in page
    assert 'id="late" aria-label="Answered late" hidden' not in page
    assert "### Answered late" in summary
    assert "try 1 is active, docs\\~.job\\_late; try 2 is planned" in summary


async def test_first_two_hundred(tmp_path: Path) -> None:
    """At most 200 rows stand in plain HTML, however many there are."""
    await fail_all(tmp_path / "run.db", [BatchItem(f"k{number}", "p") for number in range(210)])
    page = await report_of(tmp_path / "run.db")
    assert page.count('class="key"') == 200
    assert "200 of 210" in page


async def test_long_prompts_without_scripts(tmp_path: Path) -> None:
    """In plain HTML a prompt is whole, too: of very long ones, fewer items stand there, at least one."""
    for folder, sizes, shown in (("few", [300_000] * 5, 3), ("huge", [1_000_001] * 2, 1)):
        path = tmp_path / f"{folder}.db"
        await fail_all(path, [BatchItem(f"k{index}", f"{'x' * size}!", None) for index, size in enumerate(sizes)])
        page = await report_of(path)
        assert page.count(f'<p class="prompt">{"x" * sizes[0]}!</p>') == shown
        assert f"{shown} of {len(sizes)}" in page


async def test_prompts_can_be_left_out(tmp_path: Path) -> None:
    """Without prompts, none is in the page in any form."""
    await run_some(tmp_path / "run.db")
    page = await report_of(tmp_path / "run.db", prompts=False)
    assert "Document the page" not in page
    assert all("prompt" not in line for line in document_of(page))


def luminance(colour: str) -> float:
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast() -> None:
    """Texts have a contrast of at least 4.5 to 1, light and dark."""
    found = {}
    pairs = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", html.page_parts().style)
    for column, scheme in enumerate(("light", "dark"), 1):
        light = {pair[0]: luminance(pair[column]) + 0.05 for pair in pairs}
        for text in ("text", "muted", "unknown", "failed", "rejected"):
            for back in ("card", "back", "raised"):
                less, more = sorted((light[text], light[back]))
                found[text, back, scheme] = more / less
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}
