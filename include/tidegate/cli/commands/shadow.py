"""`tidegate shadow`: compare a pipeline with a job that runs today."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.events import event_object, event_rows
from tidegate.cli.options import as_json, epoch_ms, instant, pipeline_argument
from tidegate.cli.output import Rows, iso_instant, out, say, show, show_object, steps_shown, warn
from tidegate.errors import SettingsInvalid

if TYPE_CHECKING:
    from tidegate.shadow import Bounds, OtherTopic, SentEmission, ShadowReport
    from tidegate.shadow.comparison import ComparedEmission

DIFFERS = 4
"""The exit code if the jobs differ, or no emission could be compared."""


@click.command()
@pipeline_argument
@click.option("--against", "topic", required=True, help="The topic that the other job writes.")
@click.option("--connection", help="Its Kafka cluster; default: that of the pipeline's source.")
@click.option("--stage", help="The stage whose emissions are compared; default: the last.")
@click.option("--format", "format_", default="json", show_default=True, help="The format of its values.")
@click.option("--key", help="The key's columns in its values, with commas; default: the record's own key.")
@click.option("--key-format", help="The format of its keys, as `source.key_format`; default: text.")
@click.option("--windowed-keys", is_flag=True, help="Keys end with their window, as Kafka Streams writes.")
@click.option("--columns", help="Its columns, `name type, …`; default: those that the stage emits.")
@click.option("--alias", multiple=True, metavar="NAME=OTHER", help="A column that has another name there.")
@click.option("--schema", help="A schema file for its values, by its path from here.")
@click.option("--message", help="The message of Protobuf that its values are.")
@click.option("--registry", is_flag=False, flag_value="", help="The schema registry, by its connection.")
@click.option("--timestamp", help="The column with its event time; default: the record's timestamp.")
@click.option("--position", help="Where it has the source position: header:NAME, or columns with commas.")
@click.option("--equal", default="exact", show_default=True, help="When values are equal, as in a pipeline.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="A column that is not compared.")
@click.option("--within", metavar="DURATION", help="A value that it sent so much later is late: 30s.")
@click.option("--intermediate", is_flag=True, help="It may leave out intermediate results (a cache).")
@click.option(
    "--from", "begin", multiple=True, metavar="PLACE", help="An instant, or TOPIC/PARTITION/OFFSET."
)
@click.option("--until", "end", multiple=True, metavar="PLACE", help="The same; excluded.")
@click.option("--clock", type=instant, help="The time of stages with `clock: run`; default: of the records.")
@click.option("--max-records", default=500_000, show_default=True, help="The largest number of offsets.")
@click.option("--examples", default=5, show_default=True, help="Examples of each class.")
@click.option("--explain/--no-explain", default=True, help="Explain the first example of each class.")
@click.option("--html", type=click.Path(path_type=Path), help="Also write the report as a page.")
@as_json
def shadow(pipeline: str, topic: str, as_json: bool, html: Path | None, **options: Any) -> None:
    """Compare what PIPELINE would send with what another job sent to a topic. Nothing is written."""
    from tidegate.app import App, stream_of
    from tidegate.cli.master import own_session
    from tidegate.shadow import Request
    from tidegate.shadow import shadow as compare

    app = App.for_reading()
    loaded = app.pipeline(pipeline)
    request = Request(
        _other_topic(topic, options),
        _bounds(options),
        options["stage"],
        _duration(options["within"]),
        options["intermediate"],
        options["examples"],
        options["explain"],
    )
    with steps_shown(quiet=as_json) as progress, own_session(app, stream_of(loaded)) as spark:
        report = compare(app, loaded, request, spark.open, progress)
    if html is not None:
        _write_page(html, report)
    if as_json:
        show_object(report_object(report))
    else:
        _show(report)
    if report.differs or not report.compared:
        sys.exit(DIFFERS)


def _other_topic(topic: str, options: Mapping[str, Any]) -> OtherTopic:
    from tidegate.shadow import OtherTopic

    source: dict[str, Any] = {"format": options["format_"]}
    for name in ("connection", "key_format", "columns", "schema", "message", "timestamp"):
        if options[name] is not None:
            source[name] = options[name]
    if options["key"] is not None:
        source["key"] = [name.strip() for name in options["key"].split(",")]
    if options["alias"]:
        source["aliases"] = dict(map(_alias, options["alias"]))
    if options["registry"] is not None:
        source["registry"] = {"connection": options["registry"] or None}
    return OtherTopic(
        topic,
        source,
        options["equal"],
        tuple(options["ignore"]),
        options["position"],
        options["windowed_keys"],
    )


def _alias(text: str) -> tuple[str, list[str]]:
    name, equals, other = text.partition("=")
    if not equals:
        raise SettingsInvalid(f"--alias {text} cannot be read", "Write for example --alias total=TOTAL.")
    return name, [other]


def _duration(text: str | None) -> int | None:
    from tidegate.kernel.windows.window import parse_duration

    milliseconds = None if text is None else parse_duration(text)
    if text is not None and milliseconds is None:
        raise SettingsInvalid(f"--within {text} is no duration", "Write for example 500ms, 30s or 10m.")
    return milliseconds


def _bounds(options: Mapping[str, Any]) -> Bounds:
    from tidegate.shadow import BY_RECORDS, Bounds

    from_ms, from_offsets = _places("--from", options["begin"])
    until_ms, until_offsets = _places("--until", options["end"])
    clock = BY_RECORDS if options["clock"] is None else epoch_ms(options["clock"])
    return Bounds(from_ms, from_offsets, until_ms, until_offsets or None, clock, options["max_records"])


def _places(option: str, texts: Sequence[str]) -> tuple[int | None, dict[tuple[str, int], int]]:
    """Return the instant in epoch ms, or the offset of each partition, that an option names."""
    offsets: dict[tuple[str, int], int] = {}
    instants: list[int] = []
    for text in texts:
        topic, *numbers = text.rsplit("/", 2)
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            offsets[topic, int(numbers[0])] = int(numbers[1])
        else:
            instants.append(_instant(option, text))
    if len(instants) + bool(offsets) > 1:
        raise SettingsInvalid(f"{option} has two meanings", "Give one instant, or an offset per partition.")
    return (instants[0] if instants else None), offsets


def _instant(option: str, text: str) -> int:
    try:
        given: datetime = instant.convert(text, None, None)
    except click.BadParameter as error:
        raise SettingsInvalid(
            f"{option} {text} is no place", "Write 2026-01-31T00:00:00Z, or TOPIC/PARTITION/OFFSET."
        ) from error
    return epoch_ms(given)


def report_object(report: ShadowReport) -> dict[str, Any]:
    """Return the report for programs."""
    comparison = report.comparison
    return {
        "pipeline": report.pipeline,
        "stage": report.stage,
        "topic": report.topic,
        "differs": report.differs,
        "compared": report.compared,
        "tidegate": report.ours,
        "other": report.theirs,
        "counts": {str(verdict): comparison.counts[verdict] for verdict in _classes()},
        "examples": [_example_object(example) for example in _examples(report)],
        "unreadable": dict(report.unreadable),
        "explained": {
            str(verdict): [event_object(event) for event in events]
            for verdict, events in report.explained.items()
        },
        "notes": list(report.notes),
    }


def _classes() -> Iterator[Any]:
    from tidegate.shadow import ShadowClass

    yield from ShadowClass


def _examples(report: ShadowReport) -> Iterator[ComparedEmission]:
    for verdict in _classes():
        yield from report.comparison.examples.get(verdict, ())


def _example_object(example: ComparedEmission) -> dict[str, Any]:
    return {
        "class": str(example.verdict),
        "key": example.emission.key,
        "window": example.emission.window,
        "tidegate": _side(example.ours),
        "other": _side(example.theirs),
    }


def _side(emission: SentEmission | None) -> dict[str, Any] | None:
    if emission is None:
        return None
    places = {"source": emission.source, "sent": emission.sent}
    texts = {name: "/".join(map(str, place)) for name, place in places.items() if place is not None}
    return {"value": emission.value, "timestamp": emission.timestamp, **texts}


def count_rows(report: ShadowReport) -> list[dict[str, Any]]:
    """Return a row for each class that has emissions."""
    counts = report.comparison.counts
    return [
        {"class": str(verdict), "emissions": counts[verdict], "which means": verdict.explanation}
        for verdict in _classes()
        if counts[verdict]
    ]


def example_rows(report: ShadowReport) -> list[dict[str, Any]]:
    """Return a row for each example, for people."""
    return [
        {
            "class": str(example.verdict),
            "key": example.emission.key,
            "tidegate would send": _text(example.ours),
            "the other job sent": _text(example.theirs),
        }
        for example in _examples(report)
    ]


def _text(emission: SentEmission | None) -> str:
    from tidegate.yaml.tree import exact_text

    if emission is None:
        return "nothing"
    value = "null" if emission.value is None else exact_text(emission.value, ensure_ascii=False)
    window = "" if emission.window is None else f", window from {iso_instant(emission.window[0])}"
    place = emission.sent or emission.source
    at = "" if place is None else f", {'/'.join(map(str, place))}"
    return f"{value}\nat {iso_instant(emission.timestamp)}{window}{at}"


def _show(report: ShadowReport) -> None:
    title = f"{report.pipeline} ({report.stage}, {report.ours:,} emissions) against {report.topic}"
    show(count_rows(report), False, f"{title} ({report.theirs:,} records)")
    for note in report.notes:
        say(note)
    if rows := example_rows(report):
        out.print()
        show(rows, False, "Examples")
    for position, reason in report.unreadable.items():
        say(f"{position} cannot be read: {reason}")
    for verdict, events in report.explained.items():
        out.print()
        title = f"What tidegate decided, of the first example that is {verdict}"
        show(event_rows(events), False, title, f"{title}: no record of the key came in up to then.")
    if not report.compared:
        warn("No emission could be compared: see --from, --until and --key.")


def shadow_page(report: ShadowReport, explained: Mapping[str, Rows]) -> str:
    """Return the report as a page, without links, scripts or anything to load.

    Args:
        explained: class -> the events of its first example.
    """
    from tidegate.console.render import document

    tables: dict[str, Rows] = {"Classes": count_rows(report), "Examples": example_rows(report)}
    tables |= {f"What tidegate decided: {verdict}": rows for verdict, rows in explained.items()}
    title = f"{report.pipeline} against {report.topic}"
    return document("document.html", title=title, report=report, tables=tables)


def _write_page(file: Path, report: ShadowReport) -> None:
    explained = {str(verdict): event_rows(events) for verdict, events in report.explained.items()}
    try:
        file.write_text(shadow_page(report, explained), encoding="utf-8")
    except OSError as error:
        raise SettingsInvalid(f"{file} cannot be written: {error.strerror}", "Correct --html.") from error
