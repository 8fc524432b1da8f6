"""The page of generations: who is in charge, how far each has read, and what a promotion would send."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.console.pages import served, set_environment, visible_text
from tests.generations.two_generations import Beside
from tidegate.generations import standing
from tidegate.generations.standing import generation_standings, preview_promotion

SQL_ONLY = "  - {kind: sql, table: seconds}"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Two generations with two batches each, which no test changes."""
    filled = Beside(tmp_path_factory.mktemp("filled"), SQL_ONLY)
    filled.fill()
    return filled


@pytest.fixture
def beside(filled: Beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    beside = filled.copied(tmp_path / "home")
    set_environment(monkeypatch, beside.old.environment)
    return beside


@pytest.fixture
def client(beside: Beside) -> Iterator[TestClient]:
    with served() as client:
        yield client


def page(client: TestClient, compare: int | None = None) -> str:
    query = f"?compare={compare}" if compare is not None else ""
    answer = client.get(f"/pipelines/visitors/generations{query}")
    assert answer.status_code == 200
    return visible_text(answer.text)


def test_page_names_generation_in_charge(client: TestClient) -> None:
    text = page(client)
    assert "generation 1 is in charge of publishing" in text
    assert re.search(r"\b2 withholds what changes 2 none 2 0\b", text)


def test_generation_behind_shows_missing_offsets(beside: Beside, client: TestClient) -> None:
    beside.decide(beside.old, 3, [("a", 3)])
    old, new = generation_standings(beside.old.app, [beside.old.stream, beside.new.stream])
    behind = beside.old.app.ledger.head(old.stream).offsets["events", 0] - new.partitions[0].offset
    assert new.behind == behind > 0
    assert f"A promotion is refused now: {beside.new.stream} has not read yet" in page(client, compare=2)


def test_preview_equals_what_promotion_sends(beside: Beside) -> None:
    (new,) = generation_standings(beside.old.app, [beside.new.stream])
    preview = preview_promotion(beside.old.app, new)
    assert preview.refusal is None
    before = len(beside.sent())
    beside.promote(beside.new)
    assert preview.emissions is not None
    assert preview.emissions["second"] == len(beside.sent()) - before


def test_net_preview_equals_net_promotion(beside: Beside) -> None:
    (new,) = generation_standings(beside.old.app, [beside.new.stream])
    preview = preview_promotion(beside.old.app, new)
    assert preview.net is not None
    (net,) = preview.net
    before = len(beside.sent())
    beside.promote(beside.new, is_net=True)
    sent = beside.sent()[before:]
    assert net.values + net.deletions == len(sent)
    assert {row["key"] for row in net.examples} == {key for _, _, key, _ in sent}


def test_comparison_shows_changed_and_added_keys(client: TestClient) -> None:
    text = page(client, compare=2)
    assert "visitors/2 after batch 2 against visitors/1 after batch 2" in text
    assert re.search(r"sql:seconds 0 2 1 0\b", text)
    assert 'a changed {"m":2} {"m":20}' in text


def test_large_history_names_the_command(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "MOST_BATCHES", 3)
    assert "tidegate generation diff visitors 2" in page(client, compare=2)


@pytest.mark.parametrize("generation", [1, 7])
def test_only_a_withholding_generation_is_compared(client: TestClient, generation: int) -> None:
    assert client.get(f"/pipelines/visitors/generations?compare={generation}").status_code == 404


def test_promotion_is_in_the_history(beside: Beside, client: TestClient) -> None:
    beside.promote(beside.new)
    assert re.search(r"Promotions .* 2 20\d\d-.* promotion - ", page(client))


def test_withheld_emissions_are_listed_apart(beside: Beside, client: TestClient) -> None:
    beside.promote(beside.new)
    beside.decide(beside.old, 3, [("a", 3)])
    whole, withheld = (
        visible_text(client.get(f"/pipelines/visitors/emissions?generation=1{only}").text)
        for only in ("", "&only=withheld")
    )
    sent_part, _, withheld_part = whole.partition("Withheld emissions")
    assert '{"m":2}' in sent_part
    assert '{"m":3}' in withheld_part
    assert '{"m":3}' not in sent_part
    assert "Emissions that go out" not in withheld


def test_withholding_generation_has_sent_nothing(client: TestClient) -> None:
    text = visible_text(client.get("/pipelines/visitors_g2/emissions?only=sent").text)
    assert "There are none in the 2 batches that were searched" in text
