"""Run a case file's case, whole and cut into batches, and compare it with its expectation."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.errors import TidegateError
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import suite_text, with_suites
from tidegate.spark.case_parts import Emitted, Outcome
from tidegate.spark.case_run import CaseRun
from tidegate.yaml.cases import Case
from tidegate.yaml.tree import exact_text


def with_quarantine_suites(pipeline: Pipeline, folder: Path) -> Pipeline:
    """Return the pipeline with the suites that quarantine rows, if a case does not contain them.

    Args:
        folder: The folder of suites.

    Raises SettingsInvalid if there is no such suite.
    """
    missing = {
        check.suite
        for check in pipeline.checks
        if check.on_failure == "quarantine" and check.suite_text is None
    }
    return with_suites(pipeline, lambda name: suite_text(folder, name) if name in missing else None)


def differences(spark: Any, case: Case, cuts: int, seed: int) -> list[str]:
    """Return the differences from the expectation, and between the case and the case cut into batches.

    Return an empty list if there are none.

    Args:
        cuts: Also cut the case after each record, and at so many random places.
        seed: The seed of the random places.
    """
    run = CaseRun(spark, case.pipeline, case.input, case.tables, stages=case.expect.stages)
    places = list(_cut_places(run, cuts, seed))
    try:
        uncut, *cut = run.run_all([[], *places])
    except TidegateError as error:
        # It is about the pipeline and no batch, such as an expression that Spark cannot analyse.
        uncut, cut = Outcome(error=error), []
    if uncut.error is not None or case.expect.error:
        return _against_error(case, uncut, cut)
    differing = against_expectation(case, uncut)
    for places_of_cut, outcome in zip(places, cut, strict=True):
        if outcome.error is not None or outcome.all_by_key != uncut.all_by_key:
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


def _cut_places(run: CaseRun, cuts: int, seed: int) -> Iterator[list[int]]:
    """Yield the places of cuts: after each record, then random ones. Ticks already end batches."""
    places = range(1, len(run.input.steps))
    if cuts and not run.input.ticks and places:
        # The hardest cut: no two records are decided in one batch, so all that they share is in the state.
        yield list(places)
        draw = random.Random(seed)
        for _ in range(cuts):
            yield sorted(draw.sample(places, draw.randint(1, len(places))))


def against_expectation(case: Case, outcome: Outcome) -> list[str]:
    """Return the differences from what the case expects, in lines for people."""
    expect, differing = case.expect, []
    if expect.emissions is not None:
        differing += _emission_differences(expect.emissions, outcome.by_key())
    for stage, of_stage in expect.stages.items():
        lines = _emission_differences(of_stage.emissions, outcome.by_key(stage))
        differing += [f"stage {stage}:", *lines] if lines else []
    counts = outcome.counts
    counted = {
        "quarantined": (expect.quarantined, counts["quarantined"] + counts["late-quarantined"]),
        "deduplicated": (expect.deduplicated, counts["deduplicated"]),
        "removed": (expect.removed, counts["removed"]),
        "suppressed": (expect.suppressed, counts["idempotent-update-skip"]),
        "refused": (expect.refused, counts["refused"]),
        "expired": (expect.expired, counts["expired"]),
        "late_dropped": (expect.late_dropped, counts["late-record-drop"]),
    }
    for name, (expected, actual_count) in counted.items():
        if expected is not None and actual_count != expected:
            differing.append(f"{name}: expected {expected}, got {actual_count}")
    return differing


def _emission_differences(
    expected: Mapping[str, Sequence[Any]], actual: Mapping[str, Sequence[Emitted]]
) -> list[str]:
    lines = []
    for key in sorted(expected.keys() | actual.keys()):
        lines += _key_differences(key, expected.get(key, ()), actual.get(key, ()))
    return lines


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
