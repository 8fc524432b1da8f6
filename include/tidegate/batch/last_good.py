"""A pipeline file that has mistakes just now: what they are, and which text was the last good one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from difflib import unified_diff
from itertools import islice
from pathlib import Path

from tidegate.app.root import App
from tidegate.errors import PipelineInvalid
from tidegate.ledger import LastPlanned, Stream
from tidegate.spec import stream_in_broken_file

_MOST_LINES = 60
_THE_SAME = (
    "The file is the same as then: what it means has changed with tidegate, its settings, or the other files."
)


def explain_broken_file(app: App, error: PipelineInvalid) -> str:
    """The mistakes, the last batch that was planned with a good text, and what is different since, as lines.

    Whatever else the file holds, only its own text and the ledger's are quoted.
    """
    file = error.problems[0].file
    stream = broken_stream(app, error)
    last = app.ledger.last_planned(stream) if stream is not None else None
    if last is None:
        return f"{error}\nThe ledger has no batch that was planned with this file."
    return "\n".join([str(error), *_last_good(last), *_difference(Path(file), last)])


def broken_stream(app: App, error: PipelineInvalid) -> Stream | None:
    """The stream of a file with mistakes; of several generations the newest that the ledger has."""
    named = stream_in_broken_file(error.problems[0].file)
    if named is None:
        return None
    pipeline, generation = named
    if generation is not None:
        return Stream(pipeline, generation)
    generations = [stream.generation for stream in app.ledger.streams() if stream.pipeline == pipeline]
    return Stream(pipeline, max(generations)) if generations else None


def _last_good(last: LastPlanned) -> Iterator[str]:
    at = datetime.fromtimestamp(last.planned_at, timezone.utc).isoformat(sep=" ", timespec="seconds")
    yield f"The last good text was used for batch {last.seq}, planned at {at} by the run {last.run_id}."
    yield f"When the file is corrected, the next run goes on after batch {last.seq}."


def _difference(file: Path, last: LastPlanned) -> Iterator[str]:
    now = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    lines = unified_diff(
        last.text.splitlines(), now.splitlines(), f"batch {last.seq}", str(file), lineterm="", n=1
    )
    difference = list(islice(lines, _MOST_LINES))
    yield from ["What is different since:", *difference] if difference else [_THE_SAME]
