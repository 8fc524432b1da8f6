"""quarantine list, count, export, history, replay, discard: input that could not be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegate.cli.options import as_json, generation, instant, pipeline_argument

_BY = ("reason", "topic", "batch")
_FILTERS = (
    pipeline_argument,
    click.option("--reason", "reasons", multiple=True, help="Only this one, such as malformed; repeatable."),
    click.option("--topic", "topics", multiple=True, help="Only records of this topic; repeatable."),
    click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; repeatable."),
    click.option("--batch", "batches", metavar="A..B", help="Only batches A to B, both included; or one: A."),
    click.option(
        "--since", type=instant, help="Only records from this instant on (UTC), by their timestamp."
    ),
    click.option("--until", type=instant, help="Only records before this instant (UTC), by their timestamp."),
    generation,
)


def filtered(command: Any) -> Any:
    """PIPELINE, and the options that say which records of its quarantine are asked for."""
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
    from tidegate.cli import quarantine

    quarantine.show_list(limit, as_json, **which)


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
    from tidegate.cli import quarantine

    if "status" in by:
        if len(by) > 1:
            raise click.UsageError("--by status stands alone")
        quarantine.show_statuses(as_json, **which)
    else:
        quarantine.show_counts(by, as_json, **which)


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
    from tidegate.cli import quarantine

    quarantine.export(path, force, open_only, **which)


@quarantine.command()
@pipeline_argument
@click.argument("position", metavar="TOPIC/PARTITION/OFFSET")
@generation
@as_json
def history(pipeline: str, position: str, generation: int | None, as_json: bool) -> None:
    """Show what became of a record of PIPELINE: quarantined, replayed, discarded, when, by whom and why."""
    from tidegate.cli import quarantine

    quarantine.show_history(pipeline, generation, position, as_json)


_FROM = click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="The records of a file that `export` has written, and you have edited.",
)
_BY_WHOM = click.option("--by", metavar="NAME", help="Who decides it; default: your login.")


@quarantine.command()
@filtered
@_FROM
@click.option(
    "--set",
    "value_edit",
    metavar="SQL",
    help="A SQL expression of DuckDB over each record's `value` (JSON), which gives another value.",
)
@click.option(
    "--set-key",
    "key_edit",
    metavar="SQL",
    help="A SQL expression over each record's `value` (JSON) and `key` (BLOB), which gives another key.",
)
@_BY_WHOM
@click.option("--because", "why", default="", metavar="TEXT", help="Why, for the history.")
@as_json
def replay(
    file: Path | None,
    value_edit: str | None,
    key_edit: str | None,
    by: str | None,
    why: str,
    as_json: bool,
    **which: Any,
) -> None:
    """Let open records of PIPELINE come in again, as they are or edited, in a batch of their own.

    They are taken as new, after all that was read so far: a value that a key got in the meantime is replaced.
    A record that was replayed or discarded once is not replayed again.

    Correct a field, for example: --set "json_merge_patch(value, {'id': CAST(value->>'id' AS BIGINT)})".
    """
    from tidegate.cli import quarantine_work

    quarantine_work.replay(file, (value_edit, key_edit), by, why, as_json, **which)


@quarantine.command()
@filtered
@_FROM
@_BY_WHOM
@click.option("--because", "why", required=True, metavar="TEXT", help="Why, for the history.")
@as_json
def discard(file: Path | None, by: str | None, why: str, as_json: bool, **which: Any) -> None:
    """Note that nobody will use open records of PIPELINE, by whom and why. Nothing is deleted."""
    from tidegate.cli import quarantine_work

    quarantine_work.discard(file, by, why, as_json=as_json, **which)
