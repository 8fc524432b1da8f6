"""A headless Chromium, driven by Playwright, and axe-core's rules for the open page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect, sync_playwright

expect.set_options(timeout=60_000)  # five seconds are too few beside other tests

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_FOCUSABLE = """
[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")]
    .filter((element) => element.checkVisibility())
    .map((element, place) => { element.dataset.place = place; return element.outerHTML.slice(0, 120); })
"""
_FOCUSED = """
(() => {
  const element = document.activeElement, style = getComputedStyle(element);
  const isShown = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
  return [Number(element.dataset?.place ?? -1), isShown];
})()
"""

_STRUCTURE = """
(() => {
  const all = (css) => [...document.querySelectorAll(css)], mistakes = [];
  if (!document.title) mistakes.push("no title");
  if (all("h1").length !== 1) mistakes.push(`${all("h1").length} headings h1`);
  if (all("main").length !== 1) mistakes.push(`${all("main").length} landmarks main`);
  if (!all("nav, h1").length || (location.pathname !== "/" && !all("nav").length))
    mistakes.push(`${all("nav").length} landmarks nav`);
  for (const table of all("table"))
    if (!table.caption && !table.ariaLabel) mistakes.push("a table without a name");
    else if (!table.closest("[tabindex='0'][role=region]"))
      mistakes.push(`${table.ariaLabel}: columns can be out of reach`);
  return mistakes;
})()
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser without a past; the test is skipped where none is installed."""
    if CHROMIUM is None:
        pytest.skip("needs chromium (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*_FLAGS])
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Page) -> list[str]:
    """Return what axe-core finds in a page: the rule, its meaning and the elements that break it."""
    # evaluated by the debugger, which a page's Content-Security-Policy does not bind
    page.evaluate(AXE_SCRIPT)
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [_in_words(violation) for violation in result["violations"]]


def _in_words(violation: Mapping[str, Any]) -> str:
    elements = "; ".join(f"{' '.join(node['target'])} {node['html'][:200]}" for node in violation["nodes"])
    return f"{violation['id']}: {violation['help']}: {elements}"


def structure(page: Page) -> list[str]:
    """Return what a page lacks: its title, its heading, its landmarks, and names of its tables."""
    return list(page.evaluate(_STRUCTURE))


def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    return int(page.evaluate(_OVERFLOW))


def unreachable(page: Page) -> list[str]:
    """Return the links and controls that the Tab key does not reach, or that do not show the focus."""
    elements = page.evaluate(_FOCUSABLE)
    reached = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(len(elements) + 1):
        page.keyboard.press("Tab")
        place, is_shown = page.evaluate(_FOCUSED)
        if is_shown:
            reached.add(place)
    return [element for place, element in enumerate(elements) if place not in reached]
