"""The page of a pipeline's graph, and of its file: as it was planned, and what changed in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import pairwise

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidegate import inspect
from tidegate.console.drawing import HEIGHT, WIDTH, draw
from tidegate.console.host import host_of
from tidegate.console.parameters import Generation, entry_in, readable_entries, stream_of_entry
from tidegate.console.render import render
from tidegate.ledger import PlannedVersion

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
