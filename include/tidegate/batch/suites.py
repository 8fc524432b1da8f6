"""The suites of a pipeline's checks: pinned when a batch is planned, so that each try of it meets the same.

But for one: after a try that a suite has stopped, a person has looked, and may have corrected the file. So
the next try takes the file as it then is. See docs/decisions.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidegate.app.root import App
from tidegate.ledger import QualityResult
from tidegate.quality.builtin.types import BUILTIN_TYPES
from tidegate.quality.suite import Severity, Suite, parse_suite
from tidegate.spec import (
    Pipeline,
    QualityCheck,
    suite_text,
    with_checkpoints,
    with_digests,
    with_suites,
)

log = logging.getLogger(__name__)

_DEFAULT_SEVERITIES = {"warn": Severity.WARNING}


@dataclass(frozen=True)
class CheckedSuite:
    """A check's suite, as a try of a batch meets it. `digest`: SHA-256 of its text, in hex."""

    suite: Suite
    digest: str


def pinned(app: App, pipeline: Pipeline) -> Pipeline:
    """The pipeline with all that it names beside its file, as that is now: functions, checkpoints and suites.

    Raises UserFunctionFailed, SettingsInvalid where a checkpoint or a suite is missing, or is none.
    """
    folder = app.settings.expectations
    pipeline = with_checkpoints(pipeline, folder)
    for check in pipeline.checks:
        _parsed(check, suite_text(folder, check.suite), folder)
    return with_suites(with_digests(pipeline), partial(suite_text, folder))


def checked_suite(check: QualityCheck, folder: Path, earlier: Sequence[QualityResult]) -> CheckedSuite:
    """The suite that a try meets. `earlier`: what the tries before it have found.

    Raises SettingsInvalid where the file is needed, and is missing or no suite.
    """
    text = check.suite_text
    if text is None:
        text = suite_text(folder, check.suite)
    elif was_stopped(earlier) and (now := suite_text(folder, check.suite)) != text:
        log.warning(
            "The suite %s was edited since it stopped the batch: it is not what was planned with any more",
            check.suite,
        )
        text = now
    return CheckedSuite(_parsed(check, text, folder), hashlib.sha256(text.encode()).hexdigest())


def was_stopped(earlier: Iterable[QualityResult]) -> bool:
    """Whether the last try of a batch was stopped by a suite."""
    results = list(earlier)
    last = max((result.try_number for result in results), default=0)
    return any(
        not result.passed and result.severity == Severity.CRITICAL
        for result in results
        if result.try_number == last
    )


def _parsed(check: QualityCheck, text: str, folder: Path) -> Suite:
    default = _DEFAULT_SEVERITIES.get(check.on_failure, Severity.CRITICAL)
    place = f"The suite {folder / check.suite}.json"
    return parse_suite(text, place, default, additional_types=None if check.modules else BUILTIN_TYPES)
