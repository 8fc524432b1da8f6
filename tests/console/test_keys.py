"""The page of a key: what it shows of batches, and how little it reads."""

from __future__ import annotations

import re
from html import unescape
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from tests.seeded import Seeded, emission
from tidegate.app import App, stream_of
from tidegate.inspect.key_history import _BatchRows, _with_states_before, key_history
from tidegate.kernel.strategies import REASONS
from tidegate.ledger import Commit, Plan, batches, reader
from tidegate.ledger.rows import plan_in

PAGE = "/pipelines/availability/keys"


def text_of(page: str) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)))


def test_timeline_says_why_a_key_was_emitted(pages: TestClient) -> None:
    page = pages.get(PAGE, params={"key": "s<1>"}).text
    text = text_of(page)
    assert re.findall(r"Batch (\d)", text) == ["3", "2"]
    assert "went out null deleted" in text
    assert f"new {REASONS['new']}" in text
    assert "quarantined odd <b> malformed: it is cut off" in text
    assert "s<1>" not in page


def test_page_of_a_key_can_be_shared(pages: TestClient) -> None:
    page = pages.get(f"{PAGE}?generation=1&key=s%3C1%3E&batch=2&before=3").text
    assert "State after batch 2" in text_of(page)
    assert "Batch 3" not in text_of(page)
    assert 'value="s&lt;1&gt;"' in page


def test_form_without_a_batch_shows_the_key_now(pages: TestClient) -> None:
    answer = pages.get(f"{PAGE}?generation=1&key=s2&batch=")
    assert answer.status_code == 200
    assert "State now" in text_of(answer.text)


def test_page_without_key_asks_for_one(pages: TestClient) -> None:
    page = pages.get(PAGE).text
    assert "Search by key" in page
    assert "required" in page


def test_batch_without_state_is_refused(pages: TestClient) -> None:
    answer = pages.get(PAGE, params={"key": "s2", "batch": 4}, headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert "it has those from 1 to 3" in answer.text


def test_emissions_name_only_sinks_of_their_stage(recent: Seeded) -> None:
    pipeline = recent.app.pipeline("availability")
    history = key_history(recent.app, stream_of(pipeline), "s2")
    assert history is not None
    sinks = {row.sinks for item in history.batches for lane in item.stages for row in lane.emissions}
    assert sinks == {("kafka:availability",)}


def test_search_of_a_thousand_batches_decodes_one_plan(
    recent: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = recent.add_sample("availability", "many", lambda text: text.replace("availability", "many"))
    recent.add_history(pipeline, 1_000)
    decoded: list[Plan] = []
    for module in (reader, batches):
        monkeypatch.setattr(module, "plan_in", lambda row: decoded.append(plan_in(row)) or decoded[-1])
    history = key_history(recent.app, stream_of(pipeline), "s1")
    assert history is not None
    assert history.batches == ()
    assert 0 < history.searched <= 200
    assert history.before == history.first == 1_001 - history.searched
    assert len(decoded) <= 2


def test_page_goes_on_before_the_last_batch(recent: Seeded) -> None:
    stream = stream_of(recent.app.pipeline("availability"))
    first = key_history(recent.app, stream, "s<1>", most=1)
    assert first is not None
    assert ([item.seq for item in first.batches], first.before) == ([3], 3)
    second = key_history(recent.app, stream, "s<1>", before=first.before, most=1)
    assert second is not None
    assert [item.seq for item in second.batches] == [2]


def test_key_of_no_batch_has_no_history(recent: Seeded) -> None:
    stream = stream_of(recent.app.pipeline("availability"))
    history = key_history(recent.app, stream, "s9")
    assert history is not None
    assert (history.batches, history.searched, history.before) == ((), 3, None)


def test_stream_without_plan_has_no_history(recent: Seeded) -> None:
    pipeline = recent.add_sample("quiet_users")
    assert key_history(App.from_environment(recent.environment), stream_of(pipeline), "s1") is None


def test_large_outbox_of_a_batch_shows_the_key(recent: Seeded) -> None:
    pipeline = recent.app.pipeline("availability")
    rows = [emission(f"k{n}", n) for n in range(5_000)]
    recent.batch(pipeline, 4, {"emitted": 5_000.0}, outbox=rows)
    history = key_history(recent.app, stream_of(pipeline), "k4321")
    assert history is not None
    assert [row.value for item in history.batches for row in item.stages[-1].emissions] == ['{"n":4321}']


def _entry(partition: int, text: str, seq: int) -> dict[str, Any]:
    row = dict.fromkeys(("window_start", "window_end", "emitted", "due_at"))
    place = {"topic": "t", "partition": partition, "offset": seq}
    content = {"timestamp": 0, "pending": 0, "live": True, "text": text, "updated_seq": seq}
    return {**row, **place, **content}


def test_bounded_stage_keeps_entries_of_partitions_apart() -> None:
    commits = [Commit(seq, 0, cast(Any, None)) for seq in (1, 2)]
    first = _BatchRows(commits[0], {"s": [_entry(0, "zero", 1), _entry(1, "one", 1)]}, {}, ())
    second = _BatchRows(commits[1], {"s": [_entry(0, "new", 2)]}, {}, ())
    newest, _ = _with_states_before([second, first], ["s"], {}, {"s"})
    assert [entry["text"] for entry in newest.stages[0].before] == ["zero"]
