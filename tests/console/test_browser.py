"""The pages in a real browser: axe-core's rules, the keyboard, narrow and wide windows, and the refresh.

The pages come from the application's routes, so that a new page takes part by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import chromium, overflow, structure, unreachable, violations
from tests.console.pages import running, set_environment
from tests.console.shop import MORE, NOT_OURS, Shop, pages, routes
from tests.pictures import take_picture
from tests.seeded import Seeded

pytestmark = pytest.mark.process

WIDTHS = (480, 1024, 1920)
SCHEMES = ("light", "dark")
PAGES = [*pages(), *(pytest.param(path, marks=pytest.mark.long) for path in MORE)]
BROKEN = """<html lang="en"><head><title>broken</title></head><body><main><h1>One</h1><h1>Two</h1>
<img src="data:,"><a href="/" tabindex="-1">skipped</a><a href="/a" style="outline: none">unseen</a>
<a href="/b">seen</a>
<table><tr><td>without a name</td></tr></table></main></body></html>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop.open(tmp_path_factory.mktemp("shop") / "home")


@pytest.fixture(scope="module")
def url(shop: Shop) -> Iterator[str]:
    """The address of the shop's console."""
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch, shop.seeded.environment)
        with running() as url:
            yield url


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


def in_window(window: Page, width: int, scheme: str) -> list[str]:
    """Change the window of the open page, and return what is wrong with the page in it."""
    window.set_viewport_size({"width": width, "height": 900})
    window.emulate_media(color_scheme=scheme)
    wider = [f"{overflow(window)} px wider than the window"] if overflow(window) > 0 else []
    return [f"{width} px, {scheme}: {mistake}" for mistake in (*violations(window), *wider)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("path", PAGES)
def test_page_breaks_no_rule_of_axe(url: str, window: Page, path: str) -> None:
    window.goto(url + path)
    assert in_window(window, 480, "dark") == []
    assert structure(window) == []


@pytest.mark.long
@pytest.mark.parametrize("path", [*pages(), *MORE])
def test_page_is_accessible_in_every_window(url: str, window: Page, path: str) -> None:
    window.goto(url + path)
    assert [
        mistake for width in WIDTHS for scheme in SCHEMES for mistake in in_window(window, width, scheme)
    ] == []


@pytest.mark.sample(4)
@pytest.mark.parametrize("path", PAGES)
def test_keyboard_reaches_every_link_and_control(url: str, window: Page, path: str) -> None:
    window.goto(url + path)
    assert unreachable(window) == []


def test_narrow_window_breaks_no_name_into_letters(url: str, window: Page) -> None:
    window.set_viewport_size({"width": 480, "height": 900})
    window.goto(url)
    name = window.get_by_role("link", name="screw_fastening").bounding_box()
    assert name is not None
    assert name["height"] < 50, "more than two lines"


def test_broken_page_is_noticed(window: Page) -> None:
    window.goto("about:blank")  # without the Content-Security-Policy of the page before
    window.set_content(BROKEN)
    assert re.findall(r"^[\w-]+", "\n".join(violations(window)), re.MULTILINE) == ["image-alt"]
    assert structure(window) == ["2 headings h1", "0 landmarks nav", "a table without a name"]
    assert [re.findall(r">(\w+)", element) for element in unreachable(window)] == [["skipped"], ["unseen"]]


def test_every_route_is_tried_in_the_browser() -> None:
    tried = [path.partition("?")[0] for path in pages()]
    left = [route.path for route in routes() if not any(map(route.path_regex.match, tried))]
    assert left == [NOT_OURS]


def test_form_of_the_keys_page_shows_a_key(url: str, window: Page) -> None:
    window.goto(f"{url}/pipelines/availability/keys")
    window.get_by_label("Key", exact=True).fill("s2")
    window.get_by_role("button", name="Show").click()
    expect(window.get_by_role("heading", level=1)).to_have_text("Key s2")


def test_page_refreshes_until_a_person_stops_it(shop: Shop, url: str, window: Page) -> None:
    shop.seeded.now = time.time()
    lease = shop.seeded.lease(shop.seeded.app.pipeline("availability"))
    try:
        window.clock.install()
        window.goto(f"{url}/pipelines/availability")
        expect(window.locator("[data-refresh]")).to_be_visible()
        with window.expect_navigation():
            window.clock.fast_forward(10_000)
        window.get_by_role("button", name="Stop").click()
        expect(window.locator("[data-refresh]")).to_have_text("A run was at work when this page was loaded.")
        lease.release()
        window.goto(f"{url}/pipelines/availability")
        expect(window.locator("[data-refresh]")).to_have_count(0)
    finally:
        lease.release()


@pytest.mark.long
def test_pictures_show_a_day_of_a_pipeline(window: Page, tmp_path: Path) -> None:
    metrics = {"read": 1_000.0, "age_seconds": 42.0}
    seeded = Seeded(tmp_path, now=time.time() - 91 * 300, metrics=metrics)
    held_back = {"suppression-buffer-records": 38.0, "expired-window-record-drop": 3.0, "quarantined": 2.0}
    seeded.day(seeded.add_sample("screw_fastening"), 90, **held_back)
    window.set_viewport_size({"width": 1200, "height": 900})
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch, seeded.environment)
        with running() as url:
            for page, scheme in (("charts", "dark"), ("graph", "light")):
                window.emulate_media(color_scheme=scheme)
                window.goto(f"{url}/pipelines/screw_fastening/{page}")
                expect(window.locator("svg").first).to_be_visible()
                take_picture(window, f"{page}-{scheme}")
