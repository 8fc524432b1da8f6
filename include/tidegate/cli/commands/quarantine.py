"""`tidegate quarantine`: list, count, export, history, replay and discard input that could not be used."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from tidegate.cli.options import (
    RunOptions,
    as_json,
    by_whom,
    epoch_ms,
    first_and_last,
    generation,
    instant,
    login_name,
    open_stream,
    pipeline_argument,
)
from tidegate.cli.output import say, show, show_cut, show_lines, show_object
from tidegate.errors import SettingsInvalid
from tidegate.numerals import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.app import App
    from tidegate.ledger import Stream
    from tidegate.quarantine import Decision, QuarantineFilter

    Rows = Callable[[], Iterator[pa.Table]]

_BY = ("reason", "topic", "batch")
_CUT = ("reason", "key", "value")
_CUT_BYTES = 1000
"""The bytes of a key or value that people see: more than a terminal is wide."""
_POSITION = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<offset>\d+)")


def _position(
    _context: click.Context, _parameter: click.Parameter, given: str | None
) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of a text such as `stock/0/7`."""
    if given is None:
        return None
    match = _POSITION.fullmatch(given)
    if match is None:
        raise click.BadParameter(f"{given} is not a position. Give TOPIC/PARTITION/OFFSET, as in stock/0/7.")
    return match["topic"], int(match["partition"]), int(match["offset"])


_FILTERS = (
    pipeline_argument,
    click.option("--reason", "reasons", multiple=True, help="Only this one, such as malformed; repeatable."),
    click.option("--topic", "topics", multiple=True, help="Only records of this topic; repeatable."),
    click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; repeatable."),
    click.option(
        "--record",
        callback=_position,
        metavar="TOPIC/PARTITION/OFFSET",
        help="Only the record at this position.",
    ),
    click.option("--batch", "batches", metavar="A..B", help="Only batches A to B, both included; or one: A."),
    click.option(
        "--since", type=instant, help="Only records from this instant on (UTC), by their timestamp."
    ),
    click.option("--until", type=instant, help="Only records before this instant (UTC), by their timestamp."),
    generation,
)


def filtered(command: Any) -> Any:
    """Add PIPELINE, and the options that say which records of its quarantine are requested."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Work on the input of a pipeline that could not be used, and on emissions that a sink would refuse.

    Each has its position in Kafka, the reason, and the record whole. It is open until it is replayed or
    discarded.
    """


@quarantine.command(name="list")
@filtered
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Records to show."
)
@as_json
def list_(limit: int, as_json: bool, **which: Any) -> None:
    """Show records in quarantine of PIPELINE: the newest batch first, those of a batch by position.

    For people one line each, cut to the terminal; with --json one object a line, as `export` writes it.
    """
    from tidegate.quarantine import exported, exported_objects, list_quarantine, open_decisions

    app, stream, where = _opened(**which)
    records: list[dict[str, Any]] = []
    with open_decisions(app, stream) as resolved:
        for rows in list_quarantine(app, stream, where, limit, None if as_json else _CUT_BYTES):
            decisions = resolved.decisions_on(rows)
            if as_json:
                pairs = zip(exported_objects(exported(rows)), decisions, strict=True)
                show_lines(record | {"status": str(decision)} for record, decision in pairs)
            else:
                pairs = zip(rows.to_pylist(), decisions, strict=True)
                records += [_row(record, decision) for record, decision in pairs]
    if not as_json:
        _say_expired(app, stream, where)
        count = len(records)
        show_cut(records, _CUT, counted(count, "record") if count < limit else f"The newest {limit} records")


def _row(record: dict[str, Any], decision: Decision) -> dict[str, Any]:
    """Return a record for people."""
    return {
        "batch": record["seq"],
        "position": f"{record['topic']}/{record['partition']}/{record['offset']}",
        "status": str(decision),
        **{name: record[name] for name in ("reason", "key", "value", "timestamp")},
    }


@quarantine.command()
@filtered
@click.option(
    "--by",
    type=click.Choice((*_BY, "status")),
    multiple=True,
    help="Default: reason; repeatable, but for status.",
)
@as_json
def count(by: tuple[Any, ...], as_json: bool, **which: Any) -> None:
    """Count records in quarantine of PIPELINE, with the first and last batch and timestamp of each count.

    Neither keys nor values are read. By status: how many are open, replayed and discarded.
    """
    from tidegate.quarantine import count_by_status, count_quarantine

    if "status" in by and len(by) > 1:
        raise click.UsageError("--by status stands alone")
    app, stream, where = _opened(**which)
    if "status" in by:
        statuses = count_by_status(app, stream, where)
        show([{"status": status.value, "records": n} for status, n in statuses.items()], as_json)
        return
    by = by or ("reason",)
    counts = [vars(counted) for counted in count_quarantine(app, stream, where, by)]
    if not as_json:
        _say_expired(app, stream, where)
    unused = set(_BY) - set(by)
    show([{name: value for name, value in row.items() if name not in unused} for row in counts], as_json)


def _say_expired(app: App, stream: Stream, where: QuarantineFilter) -> None:
    """Print a note if batches are requested whose quarantine has expired."""
    expired = app.ledger.expired(stream, "quarantine").seq
    if (where.first_batch or 1) <= expired:
        say(f"The quarantine of batches up to {expired} has expired.")


@quarantine.command()
@filtered
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="A file that ends with .jsonl or .parquet.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--open", "open_only", is_flag=True, help="Without what was replayed or discarded.")
def export(path: Path, force: bool, open_only: bool, **which: Any) -> None:
    """Write records in quarantine of PIPELINE to a file, whole, as JSON lines or Parquet."""
    from tidegate.quarantine import export_quarantine

    app, stream, where = _opened(**which)
    written = export_quarantine(app, stream, path, where, force, open_only)
    say(f"{path} has {counted(written, 'record')} of {stream}")


@quarantine.command()
@pipeline_argument
@click.argument("position", callback=_position, metavar="TOPIC/PARTITION/OFFSET")
@generation
@as_json
def history(pipeline: str, position: tuple[str, int, int], generation: int | None, as_json: bool) -> None:
    """Show what became of a record of PIPELINE: quarantined, replayed, discarded, when, by whom and why."""
    from tidegate.quarantine import record_history

    app, stream = open_stream(pipeline, generation)
    events = [vars(event) for event in record_history(app, stream, *position)]
    if not as_json:
        events = [
            {**event, "at": None if event["at"] is None else round(event["at"] * 1000)} for event in events
        ]
    expired = app.ledger.expired(stream, "quarantine").seq
    but = f" since batch {expired + 1}; earlier quarantine has expired" if expired else ""
    show(events, as_json, empty=f"{'/'.join(map(str, position))} was never in quarantine of {stream}{but}.")


_FROM = click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="The records of a file that `export` has written, and you have edited.",
)


@quarantine.command()
@filtered
@_FROM
@click.option(
    "--set",
    "new_value",
    metavar="SQL",
    help="A SQL expression of DuckDB over each record's `value` (JSON), which gives another value.",
)
@click.option(
    "--set-key",
    "new_key",
    metavar="SQL",
    help="A SQL expression over each record's `value` (JSON) and `key` (BLOB), which gives another key.",
)
@by_whom
@click.option("--because", "why", default="", metavar="TEXT", help="Why, for the history.")
@as_json
def replay(
    file: Path | None,
    new_value: str | None,
    new_key: str | None,
    by: str | None,
    why: str,
    as_json: bool,
    pipeline: str,
    generation: int | None,
    **which: Any,
) -> None:
    """Let open records of PIPELINE come in again, as they are or edited, in a batch of their own.

    They are taken as new, after all that was read so far: a value that a key got in the meantime is replaced.
    A record that was replayed or discarded once is not replayed again.

    Correct a field, for example: --set "json_merge_patch(value, {'id': CAST(value->>'id' AS BIGINT)})".
    """
    from tidegate.app import App, stream_of
    from tidegate.cli.batch import run_trigger, trigger_now
    from tidegate.quality.beside import CheckBeside
    from tidegate.quarantine import RecordEdit, ReplayedRecords

    app = App.from_environment()
    loaded = app.pipeline(pipeline)
    stream = stream_of(loaded)
    if generation not in (None, stream.generation):
        raise SettingsInvalid(
            f"The file of {loaded.pipeline} is of generation {stream.generation}",
            "A batch can only be made of the generation that its file has.",
        )
    rows, edit = _requested(app, stream, file, which), RecordEdit(new_value, new_key)
    request = ReplayedRecords(lambda: map(edit.apply, rows()), by or login_name(), why, file is not None)
    while True:
        run_id = f"replay__{uuid4().hex[:12]}"
        trigger = trigger_now(run_id, RunOptions(), replay=request)
        with CheckBeside() as quality:
            finished = run_trigger(app, loaded, trigger, quality, quiet=as_json)
        report = finished.report
        # the batch of another run had been planned before, and went first
        if report is None or report.plan.run_id == run_id:
            break
    if as_json:
        show_object(finished.as_object())
        return
    if report is None:
        say(f"{finished.sentence}.")
    else:
        names = ("used", "quarantined", "late-quarantined", "emitted")
        used, again, late, emitted = (int(report.counts.get(name, 0)) for name in names)
        say(f"{finished.sentence}: {used} used, {again + late} in quarantine again, {emitted} emitted.")
        if late:
            say(f"{late} are still late: their windows are over. A larger `grace` needs a new generation.")
        finished.say_withheld()


@quarantine.command()
@filtered
@_FROM
@by_whom
@click.option("--because", "why", required=True, metavar="TEXT", help="Why, for the history.")
@as_json
def discard(
    file: Path | None,
    by: str | None,
    why: str,
    as_json: bool,
    pipeline: str,
    generation: int | None,
    **which: Any,
) -> None:
    """Note that nobody will use open records of PIPELINE, by whom and why. Nothing is deleted."""
    from tidegate.app import App
    from tidegate.quarantine import ResolutionRequest, discard_records

    app = App.from_environment()
    _, stream = open_stream(pipeline, generation)
    rows = _requested(app, stream, file, which)
    request = ResolutionRequest(rows, by or login_name(), why, file is not None)
    number, skipped = discard_records(app, stream, request)
    if as_json:
        show_object({"discarded": number, "resolved_before": skipped.resolved})
    else:
        say(f"Discarded {counted(number, 'record')} of {stream}{skipped}.")


def _requested(app: App, stream: Stream, file: Path | None, which: dict[str, Any]) -> Rows:
    """Return the records of a file, or the open records of the filters.

    Raises SettingsInvalid if filters are given beside a file.
    """
    from tidegate.quarantine import QuarantineFilter, iter_exported, iter_open

    where = _filter(**which)
    if file is None:
        return partial(iter_open, app, stream, where)
    if where != QuarantineFilter((), (), ()):
        raise SettingsInvalid(
            "A file says itself which records are meant", "Give filters to `export`, or none beside --from."
        )
    return partial(iter_exported, file)


def _opened(pipeline: str, generation: int | None, **which: Any) -> tuple[App, Stream, QuarantineFilter]:
    """Return the app for reading, the stream, and the filter of its records. Raises SettingsInvalid."""
    app, stream = open_stream(pipeline, generation)
    return app, stream, _filter(**which)


def _filter(
    reasons: Collection[str],
    topics: Collection[str],
    partitions: Collection[int],
    record: tuple[str, int, int] | None,
    batches: str | None,
    since: datetime | None,
    until: datetime | None,
) -> QuarantineFilter:
    """Return the filter that the options describe. Raises SettingsInvalid if an option cannot be used."""
    from tidegate.quarantine import QuarantineFilter

    if record is not None and (topics or partitions):
        raise SettingsInvalid("`--record` names its topic and partition itself", "Leave the others out.")
    topic, partition, offset = record or (None, None, None)
    topics = topics if topic is None else (topic,)
    partitions = partitions if partition is None else (partition,)

    first, last = first_and_last(batches)
    since_ms, until_ms = (None if given is None else epoch_ms(given) for given in (since, until))
    return QuarantineFilter(reasons, topics, partitions, first, last, since_ms, until_ms, offset)
