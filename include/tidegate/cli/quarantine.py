"""quarantine list, count, export, history."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tidegate import inspect
from tidegate.app import App
from tidegate.cli.options import epoch_ms
from tidegate.cli.reading import open_stream
from tidegate.cli.show import out, show, show_cut, show_lines
from tidegate.errors import SettingsInvalid
from tidegate.inspect import CountedBy, QuarantineFilter
from tidegate.ledger import Stream

_CUT = ("reason", "key", "value")
_CUT_BYTES = 1000
"""Of a key or value for people: more than a terminal is wide."""
_POSITION = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<offset>\d+)")
_BATCHES = re.compile(r"(\d+)|(\d+)?\.\.(\d+)?")


def show_list(limit: int, as_json: bool, **which: Any) -> None:
    """Show records, the newest batch first, those of a batch by position."""
    app, stream, where = opened(**which)
    decisions = inspect.Decisions(app, stream)
    if as_json:
        for rows in inspect.list_quarantine(app, stream, where, limit):
            objects = inspect.exported_objects(inspect.exported(rows))
            show_lines(
                record | {"status": str(decision)}
                for record, decision in zip(objects, decisions.decisions_on(rows), strict=True)
            )
        return
    tables = inspect.list_quarantine(app, stream, where, limit, max_bytes=_CUT_BYTES)
    records = [
        _row(record, decision)
        for rows in tables
        for record, decision in zip(rows.to_pylist(), decisions.decisions_on(rows), strict=True)
    ]
    _say_expired(app, stream, where)
    count = len(records)
    show_cut(records, _CUT, f"{count} records" if count < limit else f"The newest {limit} records")


def _row(record: dict[str, Any], decision: inspect.Decision) -> dict[str, Any]:
    """A record for people."""
    return {
        "batch": record["seq"],
        "position": f"{record['topic']}/{record['partition']}/{record['offset']}",
        "status": str(decision),
        **{name: record[name] for name in ("reason", "key", "value", "timestamp")},
    }


def show_counts(by: Sequence[CountedBy], as_json: bool, **which: Any) -> None:
    """Show how many records there are of each reason, topic or batch."""
    app, stream, where = opened(**which)
    by = by or ("reason",)
    counts = [dataclasses.asdict(count) for count in inspect.count_quarantine(app, stream, where, by)]
    if not as_json:
        _say_expired(app, stream, where)
    unused = {name for name in ("reason", "topic", "batch") if name not in by}
    show([{name: value for name, value in count.items() if name not in unused} for count in counts], as_json)


def show_statuses(as_json: bool, **which: Any) -> None:
    """Show how many records are open, replayed and discarded."""
    counts = inspect.count_by_status(*opened(**which))
    show([{"status": status.value, "records": records} for status, records in counts.items()], as_json)


def show_history(pipeline: str, generation: int | None, position: str, as_json: bool) -> None:
    """Show what became of a record, the oldest first."""
    match = _POSITION.fullmatch(position)
    if match is None:
        raise SettingsInvalid(
            f"{position} is no position", "Give TOPIC/PARTITION/OFFSET, such as stock/0/17."
        )
    app, stream = open_stream(pipeline, generation)
    place = match["topic"], int(match["partition"]), int(match["offset"])
    events = [vars(event) for event in inspect.record_history(app, stream, *place)]
    if not as_json:
        events = [
            {**event, "at": None if event["at"] is None else round(event["at"] * 1000)} for event in events
        ]
    expired = app.ledger.expired_quarantine(stream).seq
    but = f" since batch {expired + 1}; what was before is no longer kept" if expired else ""
    show(events, as_json, empty=f"{position} was never in quarantine of {stream}{but}.")


def _say_expired(app: App, stream: Stream, where: QuarantineFilter) -> None:
    """Where batches are asked for of which nothing is kept."""
    expired = app.ledger.expired_quarantine(stream).seq
    if (where.first_batch or 1) <= expired:
        text = f"Of batches up to {expired}, quarantine is no longer kept."
        out.print(text, markup=False, highlight=False, soft_wrap=True)


def export(path: Path, force: bool, open_only: bool, **which: Any) -> None:
    """Write records to a file, and say how many."""
    app, stream, where = opened(**which)
    count = inspect.export_quarantine(app, stream, path, where, force, open_only)
    out.print(f"{count} records of {stream} are in {path}", markup=False, highlight=False, soft_wrap=True)


def opened(
    pipeline: str,
    generation: int | None,
    reasons: Collection[str],
    topics: Collection[str],
    partitions: Collection[int],
    batches: str | None,
    since: datetime | None,
    until: datetime | None,
) -> tuple[App, Stream, QuarantineFilter]:
    """The app for reading, the stream, and which of its records are asked for."""
    app, stream = open_stream(pipeline, generation)
    return app, stream, record_filter(reasons, topics, partitions, batches, since, until)


def record_filter(
    reasons: Collection[str],
    topics: Collection[str],
    partitions: Collection[int],
    batches: str | None,
    since: datetime | None,
    until: datetime | None,
) -> QuarantineFilter:
    """What the options say. Raises SettingsInvalid."""
    first, last = first_and_last(batches)
    since_ms, until_ms = (None if given is None else epoch_ms(given) for given in (since, until))
    return QuarantineFilter(reasons, topics, partitions, first, last, since_ms, until_ms)


def first_and_last(batches: str | None) -> tuple[int | None, int | None]:
    """`3..7`, `3..`, `..7` or `3` as the first and the last batch; None: any. Raises SettingsInvalid."""
    if batches is None:
        return None, None
    match = _BATCHES.fullmatch(batches)
    if match is None or not any(match.groups()):
        raise SettingsInvalid(f"--batch {batches} names no batches", "Give 3..7 (7 included), 3.., ..7 or 3.")
    one, first, last = (None if number is None else int(number) for number in match.groups())
    return (one, one) if one is not None else (first, last)
