"""`tidegate init`: a new pipeline, with a case file that it passes and a quality suite."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from shlex import quote
from typing import Any

import click

import tidegate
from tidegate.cli.output import say
from tidegate.sinks import KINDS


def _ways() -> list[str]:
    """Return the names of the strategies with which a new pipeline can begin: those with a `sample`.

    Their files are read, since `--help` does not wait until they are imported, with Arrow.
    """
    files = (Path(tidegate.__file__).parent / "kernel" / "strategies").glob("*.py")
    return sorted(file.stem for file in files if "    sample: ClassVar" in file.read_text(encoding="utf-8"))


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
    type=click.Choice(_ways()),
    prompt="What goes out: on change, by threshold, at most every so often, or per hour",
    default="change",
    show_default=True,
    help="When something goes out.",
)
@click.option(
    "--sink",
    type=click.Choice(sorted(KINDS)),
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
    from tidegate.cli.output import require_new, write_texts
    from tidegate.scaffold import SCHEMA_FILE, Draft, pipeline_texts
    from tidegate.settings import Settings
    from tidegate.yaml.json_schema import file_schema

    draft = Draft(
        name=name,
        key=tuple(filter(None, (column.strip() for column in key.split(",")))),
        sink=sink,
        schedule=None if schedule == "none" else schedule,
        target=target,
        **chosen,
    )
    settings = Settings.from_environment()
    texts = pipeline_texts(draft, settings.pipelines, settings.expectations)
    require_new(texts, "Choose another name, or remove the files.")
    schema = json.dumps(file_schema("pipeline"), indent=2, ensure_ascii=False) + "\n"
    write_texts({**texts, settings.pipelines / SCHEMA_FILE: schema})
    _print_result(list(texts), draft.name)


def _print_result(files: list[Path], name: str) -> None:
    for file in files:
        say(f"Written: {_short(file)}")
    pipeline, case, *_ = files
    lines = (
        "Next:",
        f"  tidegate validate {_short(pipeline)}",
        f"  tidegate test {_short(case.parent)}",
        f"  tidegate run {name}    # one batch, with TIDEGATE_KAFKA set",
        f"In Airflow, with TIDEGATE_PIPELINES={quote(str(pipeline.parent))}, a DAG file of two lines:",
        "  from tidegate_airflow import pipeline_dags",
        "  globals().update(pipeline_dags())",
    )
    for line in lines:
        say(line)


def _short(file: Path) -> str:
    """Return the path as a user would type it in this folder."""
    here = Path.cwd()
    return quote(str(file.relative_to(here) if file.is_relative_to(here) else file))
