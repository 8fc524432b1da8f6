"""Place the nodes of a pipeline's graph in columns, for a drawing from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.inspect import Graph, Node, NodeKind

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
