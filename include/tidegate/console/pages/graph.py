"""The page of a pipeline's graph, drawn from left to right, and of its file: as it was planned, and what
changed in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import pairwise

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidegate import inspect
from tidegate.console.host import host_of
from tidegate.console.parameters import Generation, entry_in, readable_entries, stream_of_entry
from tidegate.console.render import render
from tidegate.inspect import Graph, Node, NodeKind
from tidegate.ledger import PlannedVersion

WIDTH, HEIGHT = 208, 66
_COLUMN_GAP, _ROW_GAP, _MARGIN = 56, 18, 8
_LONGEST_LABEL, _LONGEST_DETAIL = 26, 30
_ORDER = (NodeKind.TOPIC, NodeKind.LOOKUP, NodeKind.STAGE, NodeKind.SINK, NodeKind.PIPELINE)


@dataclass(frozen=True)
class Box:
    """A node at its place, in units of the drawing."""

    node: Node
    x: float
    y: float

    @property
    def label(self) -> str:
        """The label, cut to the width of the box."""
        return _cut(self.node.label, _LONGEST_LABEL)

    @property
    def detail(self) -> str:
        """The detail, or the kind, cut to the width of the box."""
        return _cut(self.node.detail or self.node.kind.value, _LONGEST_DETAIL)


@dataclass(frozen=True)
class Drawing:
    """The boxes, and the curves between them as paths of SVG."""

    boxes: Sequence[Box]
    curves: Sequence[str]
    width: float
    height: float


def draw(graph: Graph) -> Drawing:
    """Return the drawing of a graph: what is read on the left, what is written on the right."""
    columns = _columns(graph)
    numbers = {rank: number for number, rank in enumerate(sorted(set(columns.values())))}
    members: dict[int, list[Node]] = {number: [] for number in numbers.values()}
    for node in graph.nodes:
        members[numbers[columns[node.id]]].append(node)
    boxes: dict[str, Box] = {}
    most = max(map(len, members.values()), default=0)
    height = most * (HEIGHT + _ROW_GAP)
    for number, nodes in members.items():
        # A node beside what it reads: fewer curves cross.
        nodes.sort(key=lambda node: _mean_y(node, graph, boxes))
        top = _MARGIN + (height - len(nodes) * (HEIGHT + _ROW_GAP)) / 2
        x = _MARGIN + number * (WIDTH + _COLUMN_GAP)
        boxes |= {node.id: Box(node, x, top + at * (HEIGHT + _ROW_GAP)) for at, node in enumerate(nodes)}
    curves = [_curve(boxes[start], boxes[end]) for start, end in graph.edges]
    width = 2 * _MARGIN + len(members) * (WIDTH + _COLUMN_GAP) - _COLUMN_GAP
    return Drawing(list(boxes.values()), curves, max(width, 0), height - _ROW_GAP + 2 * _MARGIN)


def _columns(graph: Graph) -> dict[str, int]:
    """Return the column of each node: one after the nodes that it gets from. What is read is in the second
    column, behind the pipelines that write it.
    """
    incoming: dict[str, list[str]] = {}
    for start, end in graph.edges:
        incoming.setdefault(end, []).append(start)
    columns: dict[str, int] = {}
    # By kind: a pipeline that reads is placed after the sinks, and a stage comes after its input in the file.
    for node in sorted(graph.nodes, key=lambda node: _ORDER.index(node.kind)):
        is_source = node.kind in (NodeKind.TOPIC, NodeKind.LOOKUP)
        starts = [columns[start] for start in incoming.get(node.id, ()) if start in columns]
        columns[node.id] = 1 if is_source else 1 + max(starts, default=-1)
    return columns


def _mean_y(node: Node, graph: Graph, boxes: Mapping[str, Box]) -> float:
    above = [boxes[start].y for start, end in graph.edges if end == node.id and start in boxes]
    return sum(above) / len(above) if above else 0.0


def _curve(start: Box, end: Box) -> str:
    x, y = start.x + WIDTH, start.y + HEIGHT / 2
    to_x, to_y = end.x, end.y + HEIGHT / 2
    bend = max(abs(to_x - x) / 2, _COLUMN_GAP / 2)
    return f"M{x:.0f},{y:.0f} C{x + bend:.0f},{y:.0f} {to_x - bend:.0f},{to_y:.0f} {to_x:.0f},{to_y:.0f}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


router = APIRouter()
MOST_VERSIONS = 20
_MOST_LINES = 400


@dataclass(frozen=True)
class FileChange:
    """The difference between two consecutive versions of a pipeline's file.

    Args:
        seq: the first batch with the new version; None if no batch was planned with it yet.
        planned_at_ms: when that batch was planned, epoch ms.
        lines: (CSS class, line), as `diff -u` shows them; none if only the compiled form differs.
        is_cut: whether lines are left out.
    """

    seq: int | None
    planned_at_ms: float | None
    lines: Sequence[tuple[str, str]]
    is_cut: bool

    @property
    def added(self) -> int:
        """The number of added lines."""
        return sum(kind == "added" for kind, _ in self.lines)

    @property
    def removed(self) -> int:
        """The number of removed lines."""
        return sum(kind == "removed" for kind, _ in self.lines)


@router.get("/graph")
def graph(request: Request, dag_id: str, generation: Generation = None) -> Response:
    """The graph of a pipeline: topics, stages, sinks and the pipelines around it; and its file."""
    app = host_of(request).open_app()
    entries = inspect.catalog_entries(app)
    entry = entry_in(entries, dag_id)
    stream = stream_of_entry(entry, generation)
    shown = inspect.pipeline_graph(app, stream, entry, readable_entries(request, entries))
    versions = app.ledger.planned_versions(stream, MOST_VERSIONS + 1)
    is_own_file = entry.pipeline is not None and entry.streams[0] == stream
    return render(
        request,
        "graph.html",
        title=f"{dag_id}: graph",
        dag_id=dag_id,
        stream=stream,
        reads_logs=host_of(request).reads_logs(request, dag_id),
        graph=shown,
        labels={node.id: node.label for node in shown.nodes},
        drawing=draw(shown),
        box=(WIDTH, HEIGHT),
        versions=versions,
        changes=list(file_changes(entry.pipeline.text if is_own_file and entry.pipeline else None, versions)),
        most_versions=MOST_VERSIONS,
        text=versions[0].text if versions else entry.pipeline.text if entry.pipeline else "",
    )


def file_changes(file: str | None, versions: Sequence[PlannedVersion]) -> Iterator[FileChange]:
    """Yield what changed in a pipeline file, the newest change first.

    Args:
        file: The text of the file as it is now; None if there is none, or if it has mistakes.
        versions: The versions that batches were planned with, the newest first.
    """
    if file is not None and versions and file != versions[0].text:
        yield _change(None, None, versions[0].text, file)
    for version, before in pairwise(versions):
        yield _change(version.seq, version.planned_at * 1000, before.text, version.text)


def _change(seq: int | None, planned_at_ms: float | None, before: str, after: str) -> FileChange:
    lines = list(unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm=""))
    # The first two lines name files, which these texts have not.
    marked = [(_kind(line), line) for line in lines[2 : 2 + _MOST_LINES]]
    return FileChange(seq, planned_at_ms, marked, len(lines) > 2 + _MOST_LINES)


def _kind(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")
