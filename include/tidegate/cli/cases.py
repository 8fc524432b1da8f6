"""test, simulate."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidegate.cli.show import err, out, show, show_lines, steps_shown
from tidegate.engine.explain import in_words_of_the_file
from tidegate.engine.replay import Replay
from tidegate.engine.replay_outcome import Emitted, Fate, Outcome
from tidegate.engine.session import open_session
from tidegate.errors import PipelineInvalid, SettingsInvalid, TidegateError
from tidegate.settings import Settings
from tidegate.spec import Case, load_cases, load_pipeline, parse_input

_SUFFIXES = (".json", ".yaml", ".yml")


def test(paths: tuple[Path, ...], cuts: int, seed: int, as_json: bool) -> None:
    """Run case files (or all in folders), without Kafka or Airflow; exit 1 with a diff if any differs."""
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
            results += [
                _result(file, case, differences(spark, case, cuts, seed)) for case in load_cases(file)
            ]
    _report(results, as_json, time.monotonic() - began)


def simulate(pipeline: Path, input_file: Path, explain: bool) -> None:
    """Print what the PIPELINE file emits for an input, as JSON lines, with the reason of each emission."""
    loaded = load_pipeline(pipeline)
    text = sys.stdin.read() if str(input_file) == "-" else _read(input_file)
    given = parse_input(text, str(input_file), loaded)
    settings = Settings.from_environment()
    with steps_shown(quiet=False) as progress:
        progress("starting Spark")
        spark = open_session(settings.spark_master, settings.spark_memory)
        outcome = Replay(spark, loaded, given, trace=explain).run()
    show_lines([_fate_line(each) for each in outcome.fates])
    if outcome.error is not None:
        raise outcome.error
    show_lines([_line(each) for each in outcome.emissions])
    err.print(json.dumps(outcome.counts, sort_keys=True), markup=False, highlight=False)


def _line(each: Emitted) -> dict[str, Any]:
    window = {} if each.window is None else {"window": list(each.window)}
    return {
        "key": each.key,
        "value": each.value,
        "timestamp": each.timestamp,
        **window,
        "reason": each.reason,
        "at": each.at,
        "source": "/".join(map(str, each.source)),
    }


def _fate_line(each: Fate) -> dict[str, Any]:
    stage, key, value = in_words_of_the_file(each.step, each.key, each.value)
    return {
        "stage": stage,
        "key": key,
        "value": value,
        "timestamp": each.timestamp,
        "known": each.known,
        "fate": each.fate,
        "at": each.at,
        "source": "/".join(map(str, each.source)),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise SettingsInvalid(f"{path} cannot be read: {error.strerror}", "Correct --input.") from error


def _case_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES)
        elif path.is_file():
            yield path
        else:
            raise SettingsInvalid(f"{path} does not exist", "Name a case file or a folder of them.")


def differences(spark: Any, case: Case, cuts: int, seed: int) -> list[str]:
    """What differs from the expectation, and from itself when cut; empty when all is well."""
    replay = Replay(spark, case.pipeline, case.input, case.tables)
    places = list(_cut_places(replay, cuts, seed))
    try:
        whole, *others = replay.run_all([[], *places])
    except PipelineInvalid:
        raise
    except TidegateError as error:
        whole, others = Outcome(error=error), []
    if whole.error is not None or case.expect.error:
        return _against_error(case, whole, others)
    found = against_expectation(case, whole)
    for chosen, other in zip(places, others, strict=True):
        if other.error is not None or other.by_key() != whole.by_key():
            found.append(f"cut into batches before records {chosen}, the emissions differ")
    return found


def _against_error(case: Case, whole: Outcome, others: Sequence[Outcome]) -> list[str]:
    """A case that fails has to fail wherever it is cut."""
    wanted = case.expect.error
    if whole.error is None:
        return [f"it should have failed with {wanted}"]
    if any(type(other.error) is not type(whole.error) for other in others):
        return ["cut into batches, it does not fail in the same way"]
    name = type(whole.error).__name__
    return [] if wanted == name else [f"it failed with {name}: {whole.error}"]


def _cut_places(replay: Replay, cuts: int, seed: int) -> Iterator[list[int]]:
    """After every record, then at random places. Ticks already say where batches end."""
    places = range(1, len(replay.input.records))
    if cuts and not replay.input.ticks and places:
        yield list(places)
        draw = random.Random(seed)
        for _ in range(cuts):
            yield sorted(draw.sample(places, draw.randint(1, len(places))))


def against_expectation(case: Case, outcome: Outcome) -> list[str]:
    """What differs from what the case expects, in lines for people."""
    expect, found = case.expect, []
    if expect.emissions is not None:
        actual = outcome.by_key()
        for key in sorted(expect.emissions.keys() | actual.keys()):
            found += _key_differences(key, expect.emissions.get(key, ()), actual.get(key, []))
    counted = {
        "quarantined": (expect.quarantined, "quarantined"),
        "deduplicated": (expect.deduplicated, "deduplicated"),
        "suppressed": (expect.suppressed, "idempotent-update-skip"),
        "late_dropped": (expect.late_dropped, "late-record-drop"),
    }
    for name, (wanted, metric) in counted.items():
        if wanted is not None and outcome.counts[metric] != wanted:
            found.append(f"{name}: expected {wanted}, got {outcome.counts[metric]}")
    return found


def _key_differences(key: str, wanted: Sequence[Any], actual: Sequence[Emitted]) -> list[str]:
    lines = []
    for number in range(max(len(wanted), len(actual))):
        want = wanted[number] if number < len(wanted) else None
        got = actual[number] if number < len(actual) else None
        if want is None or got is None or not _agrees(want, got):
            lines.append(f"key {key!r}, emission {number + 1}:")
            lines.append(f"  - {_shown(want)}")
            lines.append(f"  + {_shown(got)}")
    return lines


def _agrees(want: Any, got: Emitted) -> bool:
    same_time = want.timestamp in (None, got.timestamp)
    return bool(want.value == got.value and same_time and want.window in (None, got.window))


def _shown(emission: Any) -> str:
    if emission is None:
        return "nothing"
    at = "" if emission.timestamp is None else f" at {emission.timestamp}"
    window = "" if emission.window is None else f" in {list(emission.window)}"
    return json.dumps(emission.value, ensure_ascii=False) + at + window


def _result(file: Path, case: Case, differences: list[str]) -> dict[str, Any]:
    return {"file": str(file), "case": case.name, "passed": not differences, "differences": differences}


def _report(results: list[dict[str, Any]], json_wanted: bool, seconds: float) -> None:
    failed = [each for each in results if not each["passed"]]
    if json_wanted:
        show(results, True)
    for each in [] if json_wanted else failed:
        out.print(f"FAILED {each['file']}: {each['case']}", style="red", markup=False)
        for line in each["differences"]:
            out.print(f"  {line}", markup=False, highlight=False)
    if not json_wanted:
        out.print(f"{len(results) - len(failed)} of {len(results)} cases passed in {seconds:.1f} s.")
    if failed:
        sys.exit(1)
