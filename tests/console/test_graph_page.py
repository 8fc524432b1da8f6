"""The page of the graph: topics, stages, sinks and pipelines around them; and what changed in the file."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.console.pages import served, set_environment, visible_text
from tests.seeded import Seeded
from tidegate.console.pages.graph import HEIGHT, WIDTH, draw
from tidegate.inspect import Graph, Node, NodeKind, catalog_entries, pipeline_graph

READER = """
pipeline: reader
source: {topics: [robot-advice], format: json, columns: "id string, robotId string"}
lookup: [{table: screw_fastening/counts, on: [key], columns: [fastened]}]
stages: [{name: all, emit: {on: update}, select: {id: id}}]
sinks: [{kind: kafka, topic: fastenings, connection: other}]
"""


@pytest.fixture
def seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    """Three batches of a pipeline with two stages, and a pipeline that reads what they write."""
    made = Seeded(tmp_path)
    set_environment(monkeypatch, made.environment)
    pipeline = made.add_sample("screw_fastening")
    for seq in (1, 2, 3):
        made.batch(pipeline, seq, {"used": 1000, "emitted": 30})
    (tmp_path / "pipelines" / "reader.yaml").write_text(READER)
    return made


def graph(seeded: Seeded, name: str = "screw_fastening") -> Graph:
    entries = catalog_entries(seeded.app)
    own = next(entry for entry in entries if entry.name == name)
    return pipeline_graph(seeded.app, own.streams[0], own, entries)


def page(name: str = "screw_fastening") -> str:
    with served() as client:
        answer = client.get(f"/pipelines/{name}/graph")
    assert answer.status_code == 200
    return answer.text


def test_edges_follow_records_to_other_pipelines(seeded: Seeded) -> None:
    assert set(graph(seeded).edges) == {
        ("topic:fastenings", "stage:counts"),
        ("stage:counts", "stage:advice"),
        ("stage:counts", "sink:kafka:screw-counts"),
        ("stage:advice", "sink:kafka:robot-advice"),
        ("sink:kafka:robot-advice", "pipeline:reader"),
        ("stage:counts", "pipeline:reader"),
    }


def test_upstream_pipeline_leads_to_topic_and_lookup(seeded: Seeded) -> None:
    edges = set(graph(seeded, "reader").edges)
    assert ("pipeline:screw_fastening", "topic:robot-advice") in edges
    assert ("pipeline:screw_fastening", "lookup:screw_fastening/counts") in edges


def test_topic_of_another_cluster_is_no_edge(seeded: Seeded) -> None:
    # `reader` writes a topic of the same name by another connection
    assert ("pipeline:reader", "topic:fastenings") not in graph(seeded).edges


def test_rates_are_records_over_time_between_commits(seeded: Seeded) -> None:
    shown = {node.id: (node.records, node.rate) for node in graph(seeded).nodes}
    seconds = 2 * 300
    assert shown["topic:fastenings"] == (2000, 2000 / seconds)
    assert shown["stage:advice"] == (60, 60 / seconds)
    assert shown["sink:kafka:robot-advice"] == (60, 60 / seconds)


def test_pipeline_without_batches_has_no_rates(seeded: Seeded) -> None:
    assert {node.rate for node in graph(seeded, "reader").nodes} == {None}


def test_boxes_of_a_drawing_never_overlap() -> None:
    stages = [Node(f"s{n}", NodeKind.STAGE, f"s{n}") for n in range(6)]
    sinks = [Node(f"k{n}", NodeKind.SINK, f"k{n}") for n in range(6)]
    edges = [
        ("t", "s0"),
        *((f"s{n // 2}", f"s{n + 1}") for n in range(5)),
        *((f"s{n}", f"k{n}") for n in range(6)),
    ]
    drawing = draw(Graph([Node("t", NodeKind.TOPIC, "t"), *stages, *sinks], edges))
    places = sorted((box.x, box.y) for box in drawing.boxes)
    assert len(set(places)) == 13
    assert all(b[0] - a[0] >= WIDTH or b[1] - a[1] >= HEIGHT for a, b in pairwise(places))
    assert all(x + WIDTH <= drawing.width and y + HEIGHT <= drawing.height for x, y in places)


def test_drawing_is_wellformed_and_links_the_reader(seeded: Seeded) -> None:
    svg = re.search(r"<svg.*?</svg>", page(), flags=re.DOTALL)
    assert svg is not None
    root = ElementTree.fromstring(svg[0])
    assert [link.get("href") for link in root.iter("a")] == ["/pipelines/reader/graph"]
    assert len([group for group in root.iter("g") if (group.get("class") or "").startswith("node")]) == 6


def test_edits_of_the_file_are_shown_by_batch(seeded: Seeded) -> None:
    edited = seeded.add_sample(
        "screw_fastening", edit=lambda text: text.replace("failed >= 3", "failed >= 4")
    )
    seeded.batch(edited, 4, {"used": 1000, "emitted": 30})
    seeded.add_sample("screw_fastening")
    text = visible_text(page())
    assert "Since batch 4 was planned; the next batch is planned with it: 1 line added, 1 removed" in text
    assert re.search(r"With batch 4, 2026-\S+ \S+ UTC: 1 line added, 1 removed", text)
    assert re.search(r"\+ advice: \S+ when failed >= 4", text)


def test_version_that_returns_is_there_twice(seeded: Seeded) -> None:
    old = seeded.app.pipeline("screw_fastening")
    new = seeded.add_sample("screw_fastening", edit=lambda text: f"# new\n{text}")
    for seq, pipeline in ((4, new), (5, old), (6, old)):
        seeded.batch(pipeline, seq, {"used": 1})
    versions = seeded.app.ledger.planned_versions(seeded.app.ledger.streams()[0], 10)
    assert [(version.seq, version.text.startswith("# new")) for version in versions] == [
        (5, False),
        (4, True),
        (1, False),
    ]


def test_new_pipeline_shows_its_file(seeded: Seeded) -> None:
    text = visible_text(page("reader"))
    assert "The pipeline file" in text
    assert "pipeline: reader" in text
