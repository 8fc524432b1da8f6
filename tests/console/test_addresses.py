"""Addresses of pages: no link is dead, and an odd address leads to a page that says what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from urllib.parse import quote, urljoin

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from tests.console.pages import served, set_environment, visible_text
from tests.console.shop import PLACES, Shop, routes

ODD = ("", "-1", "9" * 30, "../a", "日本😀 '<b>", "\0", "x" * 9_000)
"""Values that somebody can type in place of any parameter."""
ASKS_THE_BROKER = "/check"
BROWSER = {"accept": "text/html"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    shop = Shop.open(tmp_path_factory.mktemp("shop") / "home")
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch, shop.seeded.environment)
        with served() as client:
            yield client


def filled(path: str, values: Mapping[str, str]) -> str:
    """Return the path of a route with values of its parameters."""
    return re.sub(r"{(\w+)(:path)?}", lambda part: values[part[1]], path)


def odd_addresses(route: APIRoute) -> Iterator[str]:
    """Yield the addresses of a route with an odd value in place of each of its parameters."""
    places = {**PLACES, "path": "index.html"}
    for odd in (quote(value, safe="") for value in ODD):
        for name in re.findall(r"{(\w+)(?::path)?}", route.path):
            yield filled(route.path, places | {name: odd})
        for parameter in route.dependant.query_params:
            key = "&key=s2" if route.path.endswith("/keys") and parameter.alias != "key" else ""
            yield f"{filled(route.path, places)}?{parameter.alias}={odd}{key}"


@pytest.mark.parametrize(
    "route",
    [pytest.param(route, id=route.path) for route in routes() if not route.path.endswith(ASKS_THE_BROKER)],
)
def test_odd_address_gets_a_page(shop: TestClient, route: APIRoute) -> None:
    for address in odd_addresses(route):
        answer = shop.get(address, headers=BROWSER, follow_redirects=False)
        if "%00" in address.partition("?")[0]:
            assert answer.status_code == 404, "PostgreSQL takes no NUL"
        assert answer.status_code in (200, 303, 404, 422), address
        assert answer.status_code == 303 or answer.text.rstrip().endswith("</html>"), address


def test_page_of_odd_address_names_the_parameter(shop: TestClient) -> None:
    answer = shop.get("/pipelines/availability/keys?before=-1", headers=BROWSER)
    assert answer.status_code == 422
    assert "before: Input should be greater than or equal to 1." in visible_text(answer.text)
    assert "before: " in shop.get("/pipelines/availability/keys?before=-1").json()["detail"]


@pytest.mark.long
def test_no_page_has_a_dead_link(shop: TestClient) -> None:
    waiting, seen, dead = ["/"], {("/", "")}, {}
    while waiting:
        page = waiting.pop()
        answer = shop.get(page, headers=BROWSER)
        if answer.status_code != 200:
            dead[page] = answer.status_code
        for link in map(unescape, re.findall(r'<a [^>]*?href="([^"#]+)', answer.text)):
            address = urljoin(page, link)
            path, _, query = address.partition("?")
            # other pages of a kind have other values of the same parameters
            kind = re.sub(r"/batches/\d+", "/batches/", path), re.sub(r"=[^&]*", "", query)
            if kind not in seen and not path.endswith(ASKS_THE_BROKER):
                seen.add(kind)
                waiting.append(address)
    assert len(seen) > 50
    assert dead == {}


def test_command_on_a_page_quotes_its_key(shop: TestClient) -> None:
    page = shop.get("/pipelines/availability/keys", params={"key": "it's", "records": 2}).text
    assert "tidegate explain availability 'it'\"'\"'s' --batch 2 --generation 1" in visible_text(page)
