"""docs/edits.md: its table says what `incompatible_changes` does; rows have cases, and cases rows."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from tests.storage.test_compatibility import COMPATIBLE, INCOMPATIBLE
from tidegate.expressions.arrow import arrow_type
from tidegate.kernel.equality import widens
from tidegate.model.columns import SCALARS, parse_type

PAGE = Path(__file__).resolve().parents[2] / "docs" / "edits.md"
CASES: dict[str, list[str]] = {
    "`schedule`, `quality`, `max_records`, `start`": [
        *("the schedule, the suite and the bound of a batch", "which rows go into quarantine")
    ],
    "`source.connection`": ["the source's connection"],
    "sinks: added, removed, changed": ["sinks"],
    "`source.topics`: added, or a pattern that matches those that were read": [
        *("a topic more", "a pattern in place of a topic")
    ],
    "`source.topics`: removed, or a pattern that matches fewer": [
        *("a topic less", "a pattern that matches another topic")
    ],
    "`source.format`, `csv`, `key`, `timestamp`, `explode`, `deduplicate`, `sequence`": [
        *(
            "the format",
            "how CSV is written",
            "the key",
            "the record's key",
            "the timestamp",
            "explode",
            "deduplicate",
        ),
        *("how long repetitions are remembered", "a sequence", "how long deletions are remembered"),
    ],
    "`source.columns`: added, or removed and not used": [
        *("a column more", "a column less that is not used"),
        "a last record's column that is removed with its older name",
    ],
    "`source.metadata`, `source.headers`; not a column that identifies records": [
        "a column of metadata or a header more"
    ],
    "`source.metadata`, `source.headers`: another content of a column that identifies records": [
        "the content of a key column"
    ],
    "`source.aliases`; a column renamed with it": [
        *("older names of a column of records", "a source column's name"),
        "a last record's column that is renamed",
    ],
    "`source.aliases`: a name taken away from a column, or given to one that is not renamed, "
    "with `on_change: emit` of a lookup": [
        *(
            "a last record's column without its older name",
            "a last record's column with the name of another one",
        )
    ],
    "`source.columns`: another type": [
        *("a wider integer as key", "the type of a key column", "a column's type that is emitted"),
        *("the type of a column that makes repetitions", "the type of a column that makes a sequence"),
    ],
    "`lookup`": ["a lookup's table", "a lookup that stops to react"],
    "`lookup`: the first `on_change: emit`": ["a lookup that reacts"],
    "stages: added, removed, renamed, in another order": [
        *("a stage more", "a stage less", "a stage renamed", "stages in another order")
    ],
    "`retract` of a stage": ["retract"],
    "`sources`: one removed, or renamed": ["a source less", "a source of another name"],
    "`sources`: `format`, `key` and the like of one of them": ["the key of one of several sources"],
    "a stage's `from`: another stage, or the source": ["a stage's input"],
    "`join`: another `left`, `right` or `kind`": ["a side of a join", "the kind of a join"],
    "`join`: longer or shorter `within`, `before`, `after`, `grace`": ["the window of a join"],
    "a stage's `key`, `window` (`grace`, too)": [
        *("a later stage's key", "the window's size", "the window's grace", "the window's kind")
    ],
    "`select`: another expression of the same type, another order": [
        *("an expression of the same type", "emitted columns in another order"),
    ],
    "`select`: a column added": [
        *("an emitted column more", "a column more of which only hashes are kept, not compared")
    ],
    "`select`, `reduce`: a column or an aggregate removed": [
        *("an emitted column less", "an aggregate less", "a column less of which only hashes are kept")
    ],
    "`select`, `reduce`: a column whose name differs from an earlier one in case only": [
        *("a column's name in another case", "a column's name in another case, by an alias")
    ],
    "`select`, `reduce`: a column renamed with `aliases`": [
        *("an emitted column's name", "an emitted column's name and type", "an aggregate's name"),
        "the fields of events",
    ],
    "`aliases` of a stage: of a column that is there already, of none, of two, or taken away": [
        *("an older name for a column that is there", "an older name that no column has"),
        *("two columns that become one", "an older name less"),
    ],
    "`select`, `reduce`: a wider type": [
        *("an emitted column that takes more", "an emitted column that takes fractions"),
        *("an emitted number with more digits", "fields of an emitted column"),
        *("an aggregate of wider values", "a count of other values"),
        "an aggregate of sums that may not fit",
    ],
    "`select`, `reduce`: any other type": [
        *("an emitted column's type", "an emitted column that takes less", "a day as a time"),
        *("a long whole number as a double", "fields of an emitted column that take less"),
        "the type of a column that is not compared, of which only hashes are kept",
    ],
    "`select` of `collect` with `max_bytes`: other fields": ["the fields of events whose bytes are counted"],
    "`reduce`: another expression over aggregates that the state has, of the same or a wider type": [
        *("another expression over the same aggregates", "an expression more over aggregates"),
    ],
    "`reduce`: an expression over aggregates of another type": ["the type of an expression over aggregates"],
    "`reduce`, an aggregate added, changed": [
        *("reduce", "an aggregate more", "an aggregate's argument", "an expression over another aggregate")
    ],
    "`filter` of the source or a stage": ["the source's filter", "a stage's filter"],
    "`where`": ["where"],
    "`on_error`": ["what becomes of records that cannot be used"],
    "`on_late`": ["what becomes of late records"],
    "`expected` of a stage: added, another table": ["keys that are expected", "keys of another table"],
    "`expected` of a stage: removed": ["keys that are no longer expected"],
    "`ttl`: added, longer, shorter, removed": ["a time to live", "a longer one", "no time to live"],
    "`unchanged`": ["what is as it was"],
    "`emit.on`": ["when it emits"],
    "`on: change`: `columns`, `ignore`, `equal`, `timestamp`": [
        *("what is compared, and how", "what a hash is of", "how a hash is made"),
        "whether a hash is of the timestamp, too",
    ],
    "`heartbeat`": ["no heartbeat"],
    "`at_most_every`: added, longer or shorter": ["changes that wait", "changes that wait for longer"],
    "`at_most_every`: removed": ["no change waits any more"],
    "a wider type of a column of which `state: hash` is made": [
        *("a longer whole number of which only hashes are kept", "a hash's column with other digits")
    ],
    "from `state: value` to `hash`, and back": ["values to hashes", "hashes to values"],
    "`count`, `max_bytes`, `since`, longer or shorter `after`, `every`": [
        *("thresholds", "a timer less", "another time limit", "another interval", "another silence")
    ],
    "`any`: other triggers": ["other triggers"],
    "`early` of `window_close`: removed": ["no early results any more"],
    "`early` of `window_close`: added, changed": ["early results"],
    "`until` of a threshold": ["a condition that ends a threshold", "a condition less"],
    "`after` of a threshold: added": ["a timer more"],
    "`buffer`: other bounds, `emit_early` and `shut_down`": ["another bound of a buffer"],
    "`buffer`: a bound where there was none, or none any more": ["a bound for a buffer", "no bound any more"],
    "`clock: stream` to `run`": ["from stream time to the run's clock"],
    "`clock: run` to `stream`": ["from the run's clock to stream time"],
}
"""The page's edit -> cases of `storage/test_compatibility.py`."""
WITHOUT_CASES = {"the source of an `equal: python` function, or of the class of an aggregate"}
"""Held by `batch/test_planned_pipeline.py`: no text of a pipeline changes."""
WITHOUT_ROWS = {
    *("nothing", "a buffer that spills", "an expression event by event", "blanks in an aggregate"),
    "aggregates in another order",
}
"""Hardly an edit, or said by what a row leaves out."""


def rows() -> dict[str, str]:
    """Return edit -> whether it goes on, by the page."""
    table = PAGE.read_text().partition("## Which edits go on")[2].partition("\n##")[0]
    cells = re.findall(r"^\| (.+?) \| (.+?) \|", table, re.MULTILINE)
    return dict(cells[1:])


def test_page_lists_exactly_the_wider_types() -> None:
    table = PAGE.read_text().partition("| a column of | may become |\n|---|---|\n")[2].partition("\n\n")[0]
    wider_by_type = dict(re.findall(r"^\| `([a-z]+).*?` \| (.+?) \|$", table, re.MULTILINE))
    scalars = [name for name in dict.fromkeys(SCALARS.values()) if name not in ("string", "binary")]
    for before in scalars:
        wider = {after for after in scalars if after != before and widens(arrow(before), arrow(after))}
        assert wider == set(re.findall(r"`([a-z]+)`", wider_by_type.get(before, ""))), before
        if digits := re.search(r"with (\d+) digits", wider_by_type.get(before, "")):
            most = int(digits[1])
            assert widens(arrow(before), pa.decimal128(most)), before
            assert not widens(arrow(before), pa.decimal128(most - 1)), before
    assert {"decimal", "bigint"} <= wider_by_type.keys()
    for after, is_wider in {
        (12, 2): True,
        (12, 4): True,
        (12, 5): False,
        (12, 1): False,
        (9, 2): False,
    }.items():
        assert widens(pa.decimal128(10, 2), pa.decimal128(*after)) == is_wider


def arrow(type_: str) -> pa.DataType:
    return arrow_type(parse_type(type_))


def test_page_edits_and_cases_match() -> None:
    assert set(rows()) - WITHOUT_CASES == set(CASES)
    named = {case for cases in CASES.values() for case in cases}
    assert named == {*COMPATIBLE, *INCOMPATIBLE} - WITHOUT_ROWS


def test_page_says_what_its_cases_show() -> None:
    for edit, says in rows().items():
        cases = CASES.get(edit, [])
        assert (" yes" in f" {says}" or says.startswith("if ")) == (
            edit in WITHOUT_CASES or any(case in COMPATIBLE for case in cases)
        ), edit
        assert bool(re.match(r"no\b|if |.*; no\b", says)) == any(case in INCOMPATIBLE for case in cases), edit
