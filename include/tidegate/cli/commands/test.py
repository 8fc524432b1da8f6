"""`tidegate test`: run case files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json
from tidegate.cli.output import out, show, steps_shown
from tidegate.errors import SettingsInvalid

if TYPE_CHECKING:
    from tidegate.yaml.cases import Case

_SUFFIXES = (".json", ".yaml", ".yml")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option(
    "--cuts", default=0, help="Also cut each case after every record, and at this many random places."
)
@click.option("--seed", default=1, show_default=True, help="Of the random cuts.")
@as_json
def test(paths: tuple[Path, ...], cuts: int, seed: int, as_json: bool) -> None:
    """Run case files (or all in folders), without Kafka or Airflow; exit 1 with a diff if any differs.

    A PATH can also be the name of a pipeline: its cases are in `cases/NAME` below the pipelines folder.
    Without a PATH, all cases there run.
    """
    from tidegate.cli.master import spark_master
    from tidegate.settings import Settings
    from tidegate.spark.cases import differences, with_quarantine_suites
    from tidegate.spark.session import open_session
    from tidegate.yaml.cases import load_cases

    began = time.monotonic()
    settings = Settings.from_environment()
    cases_folder = settings.pipelines / "cases"
    files = list(_case_files(paths or [cases_folder], cases_folder))
    if not files:
        raise SettingsInvalid(
            "There are no case files there", "Name .json or .yaml files, or a folder of them."
        )
    results: list[dict[str, Any]] = []
    with steps_shown(quiet=as_json) as progress:
        progress("starting Spark")
        spark = open_session(spark_master(settings), settings.spark_memory)
        for file in files:
            progress(f"{file.name}")
            cases = [
                replace(case, pipeline=with_quarantine_suites(case.pipeline, settings.expectations))
                for case in load_cases(file)
            ]
            results += [_result(file, case, differences(spark, case, cuts, seed)) for case in cases]
    _report(results, as_json, time.monotonic() - began)


def _case_files(paths: Iterable[Path], cases_folder: Path) -> Iterator[Path]:
    """Yield the case files of paths; a path that does not exist is below `cases_folder`."""
    for path in paths:
        place = path if path.exists() else cases_folder / path
        if place.is_dir():
            files = sorted(file for file in place.rglob("*") if file.suffix in _SUFFIXES)
            if not files:
                raise SettingsInvalid(
                    f"There are no case files in {place}", "Name .json or .yaml files, or a folder of them."
                )
            yield from files
        elif place.is_file():
            yield place
        else:
            raise SettingsInvalid(
                f"{path} does not exist, here or in {cases_folder}", "Name a case file or a folder of them."
            )


def _result(file: Path, case: Case, differences: list[str]) -> dict[str, Any]:
    return {"file": str(file), "case": case.name, "passed": not differences, "differences": differences}


def _report(results: list[dict[str, Any]], as_json: bool, seconds: float) -> None:
    failed = [result for result in results if not result["passed"]]
    if as_json:
        show(results, True)
    for result in [] if as_json else failed:
        out.print(f"FAILED {result['file']}: {result['case']}", style="red", markup=False)
        for line in result["differences"]:
            out.print(f"  {line}", markup=False, highlight=False)
    if not as_json:
        out.print(f"{len(results) - len(failed)} of {len(results)} cases passed in {seconds:.1f} s.")
    if failed:
        sys.exit(1)
