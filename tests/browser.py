"""A real browser for the tests of pages: Debian's Chromium, or the one of an npm package."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from tests.extras import need_browser

if TYPE_CHECKING:
    from playwright.async_api import Browser, Locator, Page

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_MS: Final = 100_000
"""Milliseconds after which a page that does not come to what is expected fails its test."""


def executable() -> str | None:
    """Return the path of a browser: that of AGENTJOBS_BROWSER, or the first that is installed; `None` without one."""
    named = os.environ.get("AGENTJOBS_BROWSER", "install")
    found = [named] if named != "install" else [shutil.which(name) for name in NAMES]
    return next((path for path in found if path is not None), None)


AXE: Final = """async () => {
    const contrast = { normal: { expected: 4.5 }, large: { expected: 4.5 } };
    axe.configure({ checks: [{ id: 'color-contrast', options: { ignoreLength: true, contrastRatio: contrast } }] });
    const { violations } = await axe.run();
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} ${node.failureSummary}`));
}"""


@asynccontextmanager
async def launched() -> "AsyncIterator[Browser]":
    """Run a browser with a user's directory of its own; skip the test where none is installed."""
    path = need_browser(executable())
    from playwright.async_api import async_playwright  # noqa: PLC0415 - not every environment has it

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            await browser.close()


def expect(found: "Locator") -> Any:
    """Return what a page's elements are expected to come to."""
    from playwright.async_api import expect  # noqa: PLC0415 - as above

    expect.set_options(timeout=PATIENCE_MS)
    return expect(found)


class Visit:
    """A page that is open, the requests that it made, and the errors of its scripts."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.extend([message.text] if message.type == "error" else []))
        page.on("dialog", lambda dialog: self.errors.append(dialog.message))

    async def texts(self, selector: str) -> list[str]:
        """Return the text of each element that a selector finds, white space joined."""
        return [" ".join(text.split()) for text in await self.page.locator(selector).all_inner_texts()]

    async def faults(self) -> list[str]:
        """Return each element in which axe-core finds a fault, and which; text of any size needs a contrast of 4.5."""
        await self.page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
        found: list[str] = await self.page.evaluate(AXE)
        return found


@asynccontextmanager
async def visit(browser: "Browser", address: str, **options: Any) -> AsyncIterator[Visit]:
    """Open an address in a new context of the browser, and check at the end that no script failed.

    Args:
        browser: The browser.
        address: What to open.
        options: Those of the context, such as `color_scheme`.
    """
    context = await browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    visited = Visit(await context.new_page())
    try:
        await visited.page.goto(address)
        yield visited
        assert visited.errors == []
    finally:
        await context.close()
