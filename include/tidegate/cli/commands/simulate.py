"""`tidegate simulate`: print what a pipeline emits for an input."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import pipeline_argument, text_of
from tidegate.cli.output import err, steps_shown

if TYPE_CHECKING:
    from tidegate.spark.case_parts import Emitted, Fate


@click.command()
@pipeline_argument
@click.option(
    "--input",
    "input_file",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="JSON lines: {key, value, timestamp, …} or {tick: epoch ms}; - for standard input.",
)
@click.option("--stage", help="The stage whose emissions are printed; by default the last one.")
@click.option("--explain", is_flag=True, help="First, what became of each record in each stage.")
def simulate(pipeline: str, input_file: Path, stage: str | None, explain: bool) -> None:
    """Print what PIPELINE emits for an input, as JSON lines, with the reason of each emission.

    PIPELINE is a name in the pipelines folder, or the path of a file.
    """
    from tidegate.cli.master import spark_master
    from tidegate.model.stage import stage_named
    from tidegate.settings import Settings
    from tidegate.spark.case_run import CaseRun
    from tidegate.spark.cases import with_quarantine_suites
    from tidegate.spark.session import open_session
    from tidegate.yaml.cases import parse_input
    from tidegate.yaml.load import load_pipeline, pipeline_path

    settings = Settings.from_environment()
    file = pipeline_path(pipeline, settings.pipelines)
    loaded = with_quarantine_suites(load_pipeline(file), settings.expectations)
    if stage is not None:
        stage_named(loaded.outlets, stage, file)
    text = text_of(input_file, "Correct --input.")
    case_input = parse_input(text, str(input_file), loaded)
    with steps_shown(quiet=False) as progress:
        progress("starting Spark")
        spark = open_session(spark_master(settings), settings.spark_memory)
        outcome = CaseRun(
            spark, loaded, case_input, trace=explain, stages=[stage] if stage else ()
        ).run_all()[0]
    _print_lines(map(_fate_line, outcome.fates))
    if outcome.error is not None:
        raise outcome.error
    _print_lines(map(_line, outcome.stages[stage] if stage else outcome.emissions))
    err.print(json.dumps(outcome.counts, sort_keys=True), markup=False, highlight=False)


def _print_lines(rows: Iterable[Any]) -> None:
    """Print one JSON object a line, decimals with all their digits."""
    from tidegate.yaml.tree import exact_text

    for row in rows:
        print(exact_text(row, ensure_ascii=False))


def _line(emission: Emitted) -> dict[str, Any]:
    window = {} if emission.window is None else {"window": list(emission.window)}
    return {
        "key": emission.key,
        "value": emission.value,
        "timestamp": emission.timestamp,
        **window,
        "reason": emission.reason,
        "at": emission.at,
        "source": "/".join(map(str, emission.source)),
    }


def _fate_line(fate: Fate) -> dict[str, Any]:
    from tidegate.spark.explain import pipeline_terms

    stage, key, value = pipeline_terms(fate.pass_name, fate.key, fate.value)
    return {
        "stage": stage,
        "what": fate.what,
        "key": key,
        "value": value,
        "timestamp": fate.timestamp,
        "known": fate.previous,
        "fate": fate.fate,
        "at": fate.at,
        "source": "/".join(map(str, fate.source)),
    }
