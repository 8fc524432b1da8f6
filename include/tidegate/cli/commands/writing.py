"""init, schema: what helps to write pipeline files."""

from __future__ import annotations

import sys
from typing import Any

import click

# those of `tidegate.scaffold`, which help does not wait for
WAYS = ("change", "threshold", "time_limit", "window_close")
SINKS = ("kafka", "sql", "table")


class _Asking(click.Command):
    """Asks for what no option says; where nobody can answer, it says which options do."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except click.Abort:
            if sys.stdin.isatty():
                raise
            what = "Nobody answers. Give --topic, --columns, --key, --emit and --sink."
            raise click.UsageError(what) from None


@click.command(cls=_Asking)
@click.argument("name")
@click.option("--topic", prompt="Topic to read", help="The topic to read.")
@click.option(
    "--columns",
    prompt="Columns of its JSON records, such as: orderId string, quantity int",
    help="The columns of its JSON records: name type, name type.",
)
@click.option(
    "--key",
    prompt="Columns of the key, with commas (none: the record's own key)",
    default="",
    show_default=False,
    help="The columns of the key, with commas; default: the record's own key.",
)
@click.option(
    "--emit",
    "way",
    type=click.Choice(WAYS),
    prompt="What goes out: on change, by threshold, at most every so often, or per hour",
    default="change",
    show_default=True,
    help="When something goes out.",
)
@click.option(
    "--sink",
    type=click.Choice(SINKS),
    prompt="Where to",
    default="kafka",
    show_default=True,
    help="Where it goes.",
)
@click.option(
    "--to", "target", help="Topic, SQL table or path of the sink; default: named after the pipeline."
)
@click.option("--schedule", default="*/5 * * * *", show_default=True, help="Cron (UTC), or none.")
@click.option(
    "--suite/--no-suite", "has_suite", default=True, help="With a quality suite (Great Expectations)."
)
def init(name: str, key: str, sink: str, schedule: str, target: str | None, **chosen: Any) -> None:
    """Write a new pipeline NAME with a case that it passes and a quality suite.

    What no option says is asked for. Files go into TIDEGATE_PIPELINES, by default include/pipelines, and
    the suite into the folder `expectations` beside that; none is overwritten.
    """
    from tidegate.cli import init

    init.init(
        name=name,
        key=tuple(filter(None, (column.strip() for column in key.split(",")))),
        sink=sink,
        schedule=None if schedule == "none" else schedule,
        target=target or (f"{name}-out" if sink == "kafka" else name),
        **chosen,
    )


@click.command()
@click.argument("kind", type=click.Choice(("pipeline", "defaults")), default="pipeline")
def schema(kind: str) -> None:
    """Print the JSON Schema of pipeline files, or of `defaults.yaml` beside them, for editors.

    A file that begins with `# yaml-language-server: $schema=pipeline.schema.json` is checked while it is
    typed, where that file has what this prints.
    """
    from tidegate.cli import pipelines

    pipelines.schema(kind)
