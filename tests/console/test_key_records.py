"""Records of a key from Kafka on its page: decided again on request, and never in place of the rest."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from tests.seeded import Seeded
from tests.world import World, key_of
from tidegate.app import stream_of
from tidegate.console.local import ADDRESS, application
from tidegate.errors import BrokerUnavailable, SettingsInvalid
from tidegate.inspect import explain as explanations
from tidegate.inspect.explain import key_records
from tidegate.kernel.strategies import REASONS

PAGE = "/pipelines/availability/keys"


def section(page: str) -> str:
    """Return the text of the section with the records."""
    (part,) = re.findall(r'<section id="records">.*?<h2>Timeline', page, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", part)))


@pytest.mark.spark
@pytest.mark.broker
def test_page_says_why_a_record_was_suppressed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.stock(10, 5)
    world.run()
    world.stock(7)
    world.stock(0, product=2)
    world.run()
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    with TestClient(application(lambda _: world.open_session), base_url=f"http://{ADDRESS}") as client:
        first, second, nothing = (
            client.get(PAGE, params={"key": key, "records": seq})
            for key, seq in ((key_of(), 1), (key_of(), 2), ("nobody", 2))
        )
    assert f'came in {{"isAvailable": true}} before nothing new {REASONS["new"]}' in section(first.text)
    assert f"suppressed {REASONS['suppressed']}" in section(second.text)
    assert 'before emitted {"isAvailable": true}' in section(second.text)
    assert f"{world.source}[0] 2, timestamp" in section(second.text)
    assert "knows nothing of the key 'nobody'" in section(nothing.text)
    assert nothing.status_code == 200


def test_server_without_spark_names_the_command(pages: TestClient) -> None:
    page = pages.get(PAGE, params={"key": "s2", "records": 2}).text
    assert "tidegate explain availability s2 --batch 2 --generation 1" in section(page)


def test_broker_that_is_down_leaves_the_timeline(recent: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_KAFKA", "127.0.0.1:1")
    with TestClient(application(lambda _: pytest.fail), base_url=f"http://{ADDRESS}") as client:
        page = client.get(PAGE, params={"key": "s2", "records": 2}).text
    assert "127.0.0.1:1" in section(page)
    assert "Batch 2" in page


def test_large_batch_is_left_to_the_command(recent: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "MOST_RECORDS", 999)
    stream = stream_of(recent.app.pipeline("availability"))
    with pytest.raises(SettingsInvalid, match="has read 1,000 offsets, and a page reads at most 999"):
        key_records(recent.app, stream, "s2", 2, pytest.fail)
    monkeypatch.undo()
    with pytest.raises((BrokerUnavailable, SettingsInvalid)):
        key_records(recent.app, stream, "s2", 2, pytest.fail)
