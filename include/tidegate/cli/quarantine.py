"""The commands `quarantine list`, `count`, `export` and `history`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tidegate import quarantine
from tidegate.app import App
from tidegate.cli.options import epoch_ms, first_and_last, open_stream
from tidegate.cli.output import out, show, show_cut, show_lines
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Stream
from tidegate.quarantine import CountedBy, QuarantineFilter

_CUT = ("reason", "key", "value")
_CUT_BYTES = 1000
"""The bytes of a key or value that people see: more than a terminal is wide."""
_POSITION = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<offset>\d+)")


def show_list(limit: int, as_json: bool, **which: Any) -> None:
    """Show records, the newest batch first, those of a batch by position. `which`: the arguments of
    `opened`.
    """
    app, stream, where = opened(**which)
    max_bytes = None if as_json else _CUT_BYTES
    records: list[dict[str, Any]] = []
    with quarantine.open_decisions(app, stream) as resolved:
        for rows in quarantine.list_quarantine(app, stream, where, limit, max_bytes):
            decisions = resolved.decisions_on(rows)
            if as_json:
                objects = quarantine.exported_objects(quarantine.exported(rows))
                pairs = zip(objects, decisions, strict=True)
                show_lines(record | {"status": str(decision)} for record, decision in pairs)
            else:
                pairs = zip(rows.to_pylist(), decisions, strict=True)
                records += [_row(record, decision) for record, decision in pairs]
    if as_json:
        return
    _say_expired(app, stream, where)
    count = len(records)
    show_cut(records, _CUT, f"{count} records" if count < limit else f"The newest {limit} records")


def _row(record: dict[str, Any], decision: quarantine.Decision) -> dict[str, Any]:
    """Return a record for people."""
    return {
        "batch": record["seq"],
        "position": f"{record['topic']}/{record['partition']}/{record['offset']}",
        "status": str(decision),
        **{name: record[name] for name in ("reason", "key", "value", "timestamp")},
    }


def show_counts(by: Sequence[CountedBy], as_json: bool, **which: Any) -> None:
    """Show the number of records per reason, topic or batch. `which`: the arguments of `opened`."""
    app, stream, where = opened(**which)
    by = by or ("reason",)
    counts = [dataclasses.asdict(count) for count in quarantine.count_quarantine(app, stream, where, by)]
    if not as_json:
        _say_expired(app, stream, where)
    unused = {name for name in ("reason", "topic", "batch") if name not in by}
    show([{name: value for name, value in count.items() if name not in unused} for count in counts], as_json)


def show_statuses(as_json: bool, **which: Any) -> None:
    """Show how many records are open, replayed and discarded. `which`: the arguments of `opened`."""
    counts = quarantine.count_by_status(*opened(**which))
    show([{"status": status.value, "records": records} for status, records in counts.items()], as_json)


def show_history(pipeline: str, generation: int | None, position: str, as_json: bool) -> None:
    """Show the history of a record, the oldest event first.

    Args:
        position: `TOPIC/PARTITION/OFFSET`.

    Raises SettingsInvalid if the position is not in this form.
    """
    match = _POSITION.fullmatch(position)
    if match is None:
        raise SettingsInvalid(
            f"{position} is not a position", "Give TOPIC/PARTITION/OFFSET, such as stock/0/17."
        )
    app, stream = open_stream(pipeline, generation)
    place = match["topic"], int(match["partition"]), int(match["offset"])
    events = [vars(event) for event in quarantine.record_history(app, stream, *place)]
    if not as_json:
        events = [
            {**event, "at": None if event["at"] is None else round(event["at"] * 1000)} for event in events
        ]
    expired = app.ledger.expired_quarantine(stream).seq
    but = f" since batch {expired + 1}; earlier quarantine has expired" if expired else ""
    show(events, as_json, empty=f"{position} was never in quarantine of {stream}{but}.")


def _say_expired(app: App, stream: Stream, where: QuarantineFilter) -> None:
    """Print a note if batches are requested whose quarantine has expired."""
    expired = app.ledger.expired_quarantine(stream).seq
    if (where.first_batch or 1) <= expired:
        text = f"The quarantine of batches up to {expired} has expired."
        out.print(text, markup=False, highlight=False, soft_wrap=True)


def export(path: Path, force: bool, open_only: bool, **which: Any) -> None:
    """Write records to a file, and print their number.

    Args:
        force: Replace an existing file.
        open_only: Leave out records that were replayed or discarded.
        which: The arguments of `opened`.
    """
    app, stream, where = opened(**which)
    count = quarantine.export_quarantine(app, stream, path, where, force, open_only)
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
    """Return the app for reading, the stream, and the filter of its records. Raises SettingsInvalid."""
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
    """Return the filter that the options describe. Raises SettingsInvalid if an option cannot be used."""
    first, last = first_and_last(batches)
    since_ms, until_ms = (None if given is None else epoch_ms(given) for given in (since, until))
    return QuarantineFilter(reasons, topics, partitions, first, last, since_ms, until_ms)
