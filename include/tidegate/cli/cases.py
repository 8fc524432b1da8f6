"""The commands `test` and `simulate`."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.cli.show import err, out, show, steps_shown
from tidegate.engine.explain import pipeline_terms
from tidegate.engine.replay import Replay
from tidegate.engine.replay_outcome import Emitted, Fate, Outcome
from tidegate.engine.session import open_session
from tidegate.errors import SettingsInvalid, TidegateError
from tidegate.settings import Settings
from tidegate.spec import Case, Pipeline, load_cases, load_pipeline, parse_input, suite_text, with_suites
from tidegate.spec.exact import exact_text

_SUFFIXES = (".json", ".yaml", ".yml")


def test(paths: tuple[Path, ...], cuts: int, seed: int, as_json: bool) -> None:
    """Run case files (or all in folders), without Kafka or Airflow; exit with 1 and a diff if a case
    differs.

    Args:
        cuts: Also run each case cut into batches after each record, and at so many random places.
        seed: The seed of the random places.

    Raises SettingsInvalid if there is no case file, PipelineInvalid if a case's pipeline has mistakes.
    """
    began = time.monotonic()
    files = list(_case_files(paths))
    if not files:
        raise SettingsInvalid(
            "There are no case files there", "Name .json or .yaml files, or a folder of them."
        )
    settings = Settings.from_environment()
    results: list[dict[str, Any]] = []
    with steps_shown(quiet=as_json) as progress:
        progress("starting Spark")
        spark = open_session(settings.spark_master, settings.spark_memory)
        for file in files:
            progress(f"{file.name}")
            cases = [
                replace(case, pipeline=_with_suites(case.pipeline, settings)) for case in load_cases(file)
            ]
            results += [_result(file, case, differences(spark, case, cuts, seed)) for case in cases]
    _report(results, as_json, time.monotonic() - began)


def simulate(pipeline: Path, input_file: Path, explain: bool) -> None:
    """Print what the PIPELINE file emits for an input, as JSON lines with the reason of each emission.

    Args:
        input_file: JSON lines in the form of a case's input; `-` reads standard input.
        explain: Also print the fate of each record.

    Raises the error of the pipeline, after the lines before it were printed.
    """
    settings = Settings.from_environment()
    loaded = _with_suites(load_pipeline(pipeline), settings)
    text = sys.stdin.read() if str(input_file) == "-" else _read(input_file)
    case_input = parse_input(text, str(input_file), loaded)
    with steps_shown(quiet=False) as progress:
        progress("starting Spark")
        spark = open_session(settings.spark_master, settings.spark_memory)
        outcome = Replay(spark, loaded, case_input, trace=explain).run()
    _print_lines(map(_fate_line, outcome.fates))
    if outcome.error is not None:
        raise outcome.error
    _print_lines(map(_line, outcome.emissions))
    err.print(json.dumps(outcome.counts, sort_keys=True), markup=False, highlight=False)


def _with_suites(pipeline: Pipeline, settings: Settings) -> Pipeline:
    """Return the pipeline with the suites that quarantine rows, if a case does not contain them.

    Raises SettingsInvalid if there is no such suite.
    """
    missing = {
        check.suite
        for check in pipeline.checks
        if check.on_failure == "quarantine" and check.suite_text is None
    }
    return with_suites(
        pipeline, lambda name: suite_text(settings.expectations, name) if name in missing else None
    )


def _print_lines(rows: Iterable[Any]) -> None:
    """Print one JSON object a line, decimals with all their digits."""
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
    stage, key, value = pipeline_terms(fate.pass_name, fate.key, fate.value)
    return {
        "stage": stage,
        "key": key,
        "value": value,
        "timestamp": fate.timestamp,
        "known": fate.previous,
        "fate": fate.fate,
        "at": fate.at,
        "source": "/".join(map(str, fate.source)),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise SettingsInvalid(f"{path} cannot be read: {error.strerror}", "Correct --input.") from error


def _case_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
        elif path.is_file():
            yield path
        else:
            raise SettingsInvalid(f"{path} does not exist", "Name a case file or a folder of them.")


def differences(spark: Any, case: Case, cuts: int, seed: int) -> list[str]:
    """Return the differences from the expectation, and between the case and the case cut into batches.

    Return an empty list if there are none. Args: see `test`.
    """
    replay = Replay(spark, case.pipeline, case.input, case.tables)
    places = list(_cut_places(replay, cuts, seed))
    try:
        uncut, *cut = replay.run_all([[], *places])
    except TidegateError as error:
        uncut, cut = Outcome(error=error), []
    if uncut.error is not None or case.expect.error:
        return _against_error(case, uncut, cut)
    differing = against_expectation(case, uncut)
    for places_of_cut, outcome in zip(places, cut, strict=True):
        if outcome.error is not None or outcome.by_key() != uncut.by_key():
            differing.append(f"cut into batches before records {places_of_cut}, the emissions differ")
    return differing


def _against_error(case: Case, uncut: Outcome, cut: Sequence[Outcome]) -> list[str]:
    """Return the differences of a case that must fail: it must fail in the same way however it is cut."""
    expected = case.expect.error
    if uncut.error is None:
        return [f"it should have failed with {expected}"]
    if any(type(outcome.error) is not type(uncut.error) for outcome in cut):
        return ["cut into batches, it does not fail in the same way"]
    name = type(uncut.error).__name__
    return [] if expected == name else [f"it failed with {name}: {uncut.error}"]


def _cut_places(replay: Replay, cuts: int, seed: int) -> Iterator[list[int]]:
    """Yield the places of cuts: after each record, then random ones. Ticks already end batches."""
    places = range(1, len(replay.input.records))
    if cuts and not replay.input.ticks and places:
        yield list(places)
        draw = random.Random(seed)
        for _ in range(cuts):
            yield sorted(draw.sample(places, draw.randint(1, len(places))))


def against_expectation(case: Case, outcome: Outcome) -> list[str]:
    """Return the differences from what the case expects, in lines for people."""
    expect, differing = case.expect, []
    if expect.emissions is not None:
        actual = outcome.by_key()
        for key in sorted(expect.emissions.keys() | actual.keys()):
            differing += _key_differences(key, expect.emissions.get(key, ()), actual.get(key, []))
    counted = {
        "quarantined": (expect.quarantined, "quarantined"),
        "deduplicated": (expect.deduplicated, "deduplicated"),
        "suppressed": (expect.suppressed, "idempotent-update-skip"),
        "refused": (expect.refused, "refused"),
        "late_dropped": (expect.late_dropped, "late-record-drop"),
    }
    for name, (expected, metric) in counted.items():
        if expected is not None and outcome.counts[metric] != expected:
            differing.append(f"{name}: expected {expected}, got {outcome.counts[metric]}")
    return differing


def _key_differences(key: str, expected: Sequence[Any], actual: Sequence[Emitted]) -> list[str]:
    lines = []
    for number in range(max(len(expected), len(actual))):
        want = expected[number] if number < len(expected) else None
        got = actual[number] if number < len(actual) else None
        if want is None or got is None or not _agrees(want, got):
            lines.append(f"key {key!r}, emission {number + 1}:")
            lines.append(f"  - {_emission_text(want)}")
            lines.append(f"  + {_emission_text(got)}")
    return lines


def _agrees(want: Any, got: Emitted) -> bool:
    same_time = want.timestamp in (None, got.timestamp)
    return bool(want.value == got.value and same_time and want.window in (None, got.window))


def _emission_text(emission: Any) -> str:
    if emission is None:
        return "nothing"
    at = "" if emission.timestamp is None else f" at {emission.timestamp}"
    window = "" if emission.window is None else f" in {list(emission.window)}"
    return exact_text(emission.value, ensure_ascii=False) + at + window


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
