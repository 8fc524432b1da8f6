"""The guide's table of edits says what `incompatible_changes` does: rows have cases, and cases rows."""

from __future__ import annotations

import re
from pathlib import Path

from tests.spec.test_compatibility import COMPATIBLE, INCOMPATIBLE

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide.md"
CASES: dict[str, list[str]] = {
    "`schedule`, `quality`, `max_records`, `start`": [
        *("the schedule, the suite and the bound of a batch", "which rows go into quarantine")
    ],
    "`source.connection`": ["the source's connection"],
    "sinks: added, removed, changed": ["sinks"],
    "`source.topics`: added": ["a topic more"],
    "`source.topics`: removed": ["a topic less"],
    "`source.format`, `key`, `timestamp`, `explode`, `deduplicate`": [
        *("the format", "the key", "the record's key", "the timestamp", "explode", "deduplicate"),
        "how long repetitions are remembered",
    ],
    "`source.columns`: added, or removed and not used": ["a column more", "a column less that is not used"],
    "`source.columns`: another type": [
        *("a wider integer as key", "the type of a key column", "a column's type that is emitted"),
        "the type of a column that makes repetitions",
    ],
    "`lookup`": ["a lookup's table"],
    "stages: added, removed, renamed, in another order": [
        *("a stage more", "a stage less", "a stage renamed", "stages in another order")
    ],
    "a stage's `key`, `window` (`grace`, too)": [
        *("a later stage's key", "the window's size", "the window's grace", "the window's kind")
    ],
    "`select` of `latest`: another expression of the same type": ["an expression of the same type"],
    "`select` of `latest`: a column added": [
        *("an emitted column more", "a column more of which only hashes are kept, not compared")
    ],
    "`select`: a column removed, or of another type": [
        *("an emitted column less", "an emitted column's type"),
        "a column less of which only hashes are kept",
    ],
    "`select` of `collect`: other fields": ["the fields of events"],
    "`reduce`, an aggregate added, removed, changed": [
        *("reduce", "an aggregate more", "an aggregate less", "an aggregate's argument")
    ],
    "`where`": ["where"],
    "`on_error`": ["what becomes of records that cannot be used"],
    "`emit.on`": ["when it emits"],
    "`on: change`: `columns`, `ignore`, `equal`, `timestamp`": [
        *("what is compared, and how", "what a hash is of", "how a hash is made"),
        "whether a hash is of the timestamp, too",
    ],
    "`heartbeat`": ["no heartbeat"],
    "from `state: value` to `hash`, and back": ["values to hashes", "hashes to values"],
    "`count`, `max_bytes`, `since`, longer or shorter `after`, `every`": [
        *("thresholds", "a timer less", "another time limit", "another interval")
    ],
    "`after` of a threshold: added": ["a timer more"],
    "`buffer`: other bounds, `emit_early` and `shut_down`": ["another bound of a buffer"],
    "`buffer`: a bound where there was none, or none any more": ["a bound for a buffer", "no bound any more"],
    "`clock: stream` to `run`": ["from stream time to the run's clock"],
    "`clock: run` to `stream`": ["from the run's clock to stream time"],
}
"""The guide's edit -> cases of `spec/test_compatibility.py`."""
WITHOUT_CASES = {"the source of an `equal: python` function"}
"""Held by `protocol/test_planned_pipeline.py`: no text of a pipeline changes."""
WITHOUT_ROWS = {
    *("nothing", "a buffer that spills", "an expression event by event", "blanks in an aggregate"),
    "aggregates in another order",
}
"""Hardly an edit, or said by what a row leaves out."""


def rows() -> dict[str, str]:
    """Edit -> whether it goes on, as the guide says it."""
    table = GUIDE.read_text().partition("## Edits within a generation")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \| (.+?) \|", table, re.MULTILINE)
    return dict(cells[1:])


def test_each_edit_of_the_guide_has_cases_and_each_case_an_edit() -> None:
    assert set(rows()) - WITHOUT_CASES == set(CASES)
    named = {case for cases in CASES.values() for case in cases}
    assert named == {*COMPATIBLE, *INCOMPATIBLE} - WITHOUT_ROWS


def test_the_guide_says_of_each_what_its_cases_show() -> None:
    for edit, says in rows().items():
        cases = CASES.get(edit, [])
        assert (" yes" in f" {says}" or says.startswith("if ")) == (
            edit in WITHOUT_CASES or any(case in COMPATIBLE for case in cases)
        ), edit
        assert bool(re.match(r"no\b|if |.*; no\b", says)) == any(case in INCOMPATIBLE for case in cases), edit
