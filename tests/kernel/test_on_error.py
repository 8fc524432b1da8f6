"""Records that cannot be used: named with their position, or put aside as though they had never come."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest

from tests.kernel.rows_for_tests import key_hash
from tidegate import kernel
from tidegate.errors import ConditionFailed, RecordFailed, TidegateError
from tidegate.expressions import Condition

INPUT = pa.struct([("value", pa.binary()), ("reason", pa.string())])
HUGE = 2**63 - 1
FAR_MS = 253_402_300_800_000
"""The first instant of the year 10000."""

VALUE = pa.struct(
    [("n", pa.int64()), ("d", pa.decimal128(38, 0)), ("at", pa.timestamp("us", "UTC")), ("xs", pa.int64())]
)
SUMS = kernel.Aggregates(
    (kernel.Aggregate("xs", "collect_list"), kernel.Aggregate("n", "sum"), kernel.Aggregate("d", "avg"))
)
INVERSE = Condition("10 / n > 0", (">", ("/", ("literal", 10), ("column", "n")), ("literal", 0)))


@dataclass
class Decided:
    """The kernel's results of one batch, as plain rows."""

    emissions: list[dict[str, Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    quarantined: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def record(offset: int, timestamp: int = 0, key: str = "k", **value: Any) -> dict[str, Any]:
    return {"offset": offset, "timestamp": timestamp, "key": key, "value": {"xs": offset, **value}}


def decide(
    stage: kernel.Stage, records: Sequence[dict[str, Any]], state: Sequence[dict[str, Any]] = (), end: int = 0
) -> Decided:
    """One batch. The stream time is that of the records, whichever of them can be used."""
    accumulator, output = stage.reduce.accumulator_type(VALUE), stage.reduce.output_type(VALUE)
    record = VALUE if stage.on_late == "emit" else None
    schema = kernel.input_schema(VALUE, accumulator, output, INPUT, record=record)
    rows, time = [], -1
    for given in records:
        rows.append(
            {
                **given,
                "kind": kernel.RECORD,
                "hash": 0 if stage.bound else key_hash(given["key"]),
                "updated_seq": 0,
                "topic": "t",
                "partition": 0,
                "part": 0,
                "turn": given["offset"],
                "time": given.get("time", time),
                "passes": True,
                "input": {"value": b"%d" % given["offset"]},
                "record": given["value"],
            }
        )
        time = max(time, given["timestamp"])
    table = pa.Table.from_pylist([*state, *rows], schema=schema)
    table = table.sort_by([(name, "ascending") for name in kernel.order(stage)]).combine_chunks()
    batch = kernel.Batch(times={("t", 0): max(time, end)})
    decided = Decided()
    kinds = {kernel.EMISSION: decided.emissions, kernel.STATE: decided.states}
    kinds[kernel.QUARANTINED] = decided.quarantined
    kinds[kernel.REFUSED] = decided.refused
    kinds[kernel.LATE] = decided.late
    for output in kernel.decide(stage, table.to_batches(), batch):
        is_late = output.num_rows and output.column("kind")[0].as_py() == kernel.LATE
        for row in (kernel.late_emissions(output) if is_late else output).to_pylist():
            if row["kind"] == kernel.COUNTS:
                decided.counts.update(json.loads(row["counts"]))
            else:
                kinds[row["kind"]].append(row)
    return decided


def failure(stage: kernel.Stage, *records: dict[str, Any], end: int = 0) -> TidegateError:
    with pytest.raises(TidegateError) as caught:
        decide(stage, records, end=end)
    return caught.value


def setting_aside(stage: kernel.Stage) -> kernel.Stage:
    return replace(stage, on_error="quarantine")


UPDATE = kernel.Stage(SUMS, kernel.Update(), name="totals")
LATEST = kernel.Stage(kernel.Latest(), kernel.Update(), name="newest")


def test_sum_beyond_64_bits_names_its_record() -> None:
    error = failure(UPDATE, record(3, n=HUGE), record(4, n=1), record(5, n=-7))
    assert isinstance(error, RecordFailed)
    assert "`n`, sum(…), becomes too large" in error.what
    assert "at the record t/0/4 in the stage `totals`" in error.what
    assert "on_error: quarantine" in error.fix


def test_sum_can_be_the_largest_or_least_number() -> None:
    assert decide(UPDATE, [record(0, n=HUGE)]).emissions[-1]["value"]["n"] == HUGE
    assert decide(UPDATE, [record(0, n=-HUGE), record(1, n=-1)]).emissions[-1]["value"]["n"] == -HUGE - 1


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_a_decimal_past_38_digits_names_its_record(function: str) -> None:
    stage = replace(UPDATE, reduce=kernel.Aggregates((kernel.Aggregate("d", function),)))
    large = Decimal("9" * 38) if function == "sum" else Decimal(10) ** 36
    error = failure(stage, record(7, d=Decimal(1)), record(8, d=large))
    assert isinstance(error, RecordFailed)
    assert "t/0/8" in error.what


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(LATEST, id="by columns"),
        pytest.param(replace(LATEST, emit=kernel.Change(("at",), heartbeat_ms=5)), id="by records"),
    ],
)
def test_instant_beyond_year_9999_names_its_record(stage: kernel.Stage) -> None:
    records = [record(0, at=0), record(1, at=FAR_MS * 1000)]
    with pytest.raises(RecordFailed, match=r"outside of the years 1 to 9999 \(at the record t/0/1"):
        decide(stage, records)
    decided = decide(setting_aside(stage), records)
    assert [row["offset"] for row in decided.quarantined] == [1]
    assert decided.quarantined[0]["input"]["value"] == b"1"
    assert decided.counts["used"] == 1
    assert decided.counts["quarantined"] == 1


def test_quarantined_record_is_whole_with_position_and_reason() -> None:
    decided = decide(setting_aside(UPDATE), [record(3, n=HUGE), record(4, n=1), record(5, n=-7)])
    (aside,) = decided.quarantined
    assert (aside["topic"], aside["partition"], aside["offset"]) == ("t", 0, 4)
    assert aside["input"]["value"] == b"4"
    assert aside["input"]["reason"].startswith("record_failed: `n`, sum(…), becomes too large")
    assert [row["value"]["n"] for row in decided.emissions] == [HUGE, HUGE - 7]
    assert [row["value"]["xs"] for row in decided.emissions] == [[3], [3, 5]]
    assert (decided.counts["used"], decided.counts["quarantined"]) == (2, 1)


def test_a_condition_that_fails_sets_its_record_aside() -> None:
    stage = replace(setting_aside(UPDATE), where=INVERSE)
    decided = decide(stage, [record(0, n=1), record(1, n=-1), record(2, n=1)])
    assert [row["value"]["n"] for row in decided.emissions] == [1, 2], "record 1 makes the sum 0"
    assert decided.quarantined[0]["input"]["reason"].startswith("condition_failed: `10 / n > 0` has no")


def test_record_enters_all_its_windows_or_none() -> None:
    stage = replace(setting_aside(UPDATE), window=kernel.Hopping(20, 10))
    # the windows [0, 20) and [10, 30): only the first of them cannot take record 1
    decided = decide(stage, [record(0, 5, n=HUGE), record(1, 15, n=1), record(2, 16, n=-1)])
    outputs = [(row["window_start"], row["value"]["n"]) for row in decided.emissions]
    assert outputs == [(0, HUGE), (0, HUGE - 1), (10, -1)]
    first_only = decide(stage, [record(0, 15, n=HUGE), record(1, 25, n=1)])
    assert [(row["window_start"], row["value"]["n"]) for row in first_only.emissions] == [
        (0, HUGE),
        (10, HUGE),
    ]
    assert {row["window_start"] for row in first_only.states} == {10}, "[0, 20) is over, [20, 40) is none"


def test_sessions_that_cannot_be_joined_stay_unchanged() -> None:
    stage = replace(setting_aside(UPDATE), window=kernel.Session(10, 100))
    decided = decide(
        stage, [record(0, 0, n=HUGE), record(1, 15, n=HUGE), record(2, 8, n=0), record(3, 16, n=-5)]
    )
    outputs = [
        (row["window_start"], row["window_end"], row["value"] and row["value"]["n"])
        for row in decided.emissions
    ]
    assert outputs == [(0, 0, HUGE), (15, 15, HUGE), (15, 15, None), (15, 16, HUGE - 5)]
    assert [row["offset"] for row in decided.quarantined] == [2]


def test_flush_that_fails_quarantines_its_record() -> None:
    stage = replace(setting_aside(UPDATE), emit=kernel.Threshold(count=2), where=INVERSE)
    decided = decide(stage, [record(0, n=1), record(1, n=-1), record(2, n=1)])
    assert [row["value"]["xs"] for row in decided.emissions] == [[0, 2]]
    assert [row["offset"] for row in decided.quarantined] == [1]


def test_failing_timer_stops_with_key_and_window() -> None:
    stage = replace(
        setting_aside(UPDATE), emit=kernel.WindowClose(), window=kernel.Tumbling(10), where=INVERSE
    )
    error = failure(stage, record(0, 0, n=1), record(1, 1, n=-1), end=10)
    assert isinstance(error, ConditionFailed)
    assert "when the key 'k' in the window [0, 10] goes out, by window_close" in error.what


BOUND = kernel.Bound(max_bytes=150)
EMITS = {
    "Update": (kernel.Update(), None),
    "Threshold": (kernel.Threshold(count=3), None),
    "TimeLimit": (kernel.TimeLimit(7), None),
    "bounded TimeLimit": (kernel.TimeLimit(7), BOUND),
    "Interval": (kernel.Interval(10), None),
    "WindowClose": (kernel.WindowClose(), None),
}
WINDOWS = [None, kernel.Tumbling(10, 5), kernel.Hopping(10, 5, 5), kernel.Session(4, 5)]


@pytest.mark.parametrize("window", WINDOWS, ids=["none", "tumbling", "hopping", "session"])
@pytest.mark.parametrize(("emit", "bound"), EMITS.values(), ids=EMITS)
def test_records_that_are_set_aside_leave_no_trace(
    emit: kernel.Emit, bound: kernel.Bound | None, window: kernel.Window | None
) -> None:
    if window is None and isinstance(emit, kernel.WindowClose):
        pytest.skip("it needs a window")
    stage = kernel.Stage(SUMS, emit, window=window, bound=bound, on_error="quarantine")
    for seed in range(5):
        batches = _random_batches(random.Random(seed))
        with_all = _history(stage, batches)
        without = _history(
            stage, [[record for record in batch if not _is_poison(record)] for batch in batches]
        )
        assert with_all[0] == without[0], seed
        assert with_all[1] == without[1], seed
        poison = sum(map(_is_poison, chain(*batches)))
        assert poison == with_all[2] if window is None else 0 < with_all[2] <= poison, "others come too late"


def _is_poison(given: dict[str, Any]) -> bool:
    return bool(given["value"]["d"] >= Decimal(10) ** 34)


def _random_batches(source: random.Random) -> list[list[dict[str, Any]]]:
    """Records with their stream time, which does not depend on which of them are set aside."""
    batches: list[list[dict[str, Any]]] = []
    offset, time = 0, 0
    for _ in range(3):
        batch = []
        for _ in range(source.randint(4, 14)):
            before = time
            poison = source.random() < 0.3
            at = max(0, time + source.randint(-12, 0 if poison else 8))
            time = max(time, at)
            d = Decimal(10) ** 37 if poison else Decimal(source.randint(0, 9))
            batch.append({**record(offset, at, source.choice("ab"), n=1, d=d), "time": before})
            offset += 1
        batches.append(batch)
    return batches


def _history(
    stage: kernel.Stage, batches: list[list[dict[str, Any]]]
) -> tuple[list[Any], dict[Any, Any], int]:
    state: list[dict[str, Any]] = []
    emissions, aside, end = [], 0, 0
    for seq, batch in enumerate(batches, start=1):
        end = max([end, *(record["timestamp"] for record in batch)])
        decided = decide(stage, batch, state, end)
        columns = kernel.input_schema(VALUE, VALUE, VALUE, INPUT).names
        state += [
            {
                **{name: row.get(name) for name in columns},
                "updated_seq": seq,
                "turn": -1,
                "part": 0,
                "value": None,
            }
            for row in decided.states
        ]
        emissions += [
            (row["key"], row["window_start"], row["value"], row["reason"], row["timestamp"], row["offset"])
            for row in sorted(decided.emissions, key=lambda row: (row["key"], row["ordinal"]))
        ]
        aside += decided.counts["quarantined"]
        assert decided.counts["quarantined"] == len(decided.quarantined)
        fates = ("used", "quarantined", "deduplicated", "expired-window-record-drop")
        assert sum(decided.counts[fate] for fate in fates) == len(batch)
    newest = {(row["key"], row["window_start"], row["window_end"]): row for row in state}
    for row in newest.values():
        row["updated_seq"] = None
    return emissions, newest, aside


def test_quarantined_record_leaves_nothing_in_a_set() -> None:
    reduce = kernel.Aggregates((kernel.Aggregate("xs", "collect_set"), kernel.Aggregate("n", "last")))
    stage = setting_aside(kernel.Stage(reduce, kernel.Update(), where=INVERSE, name="sets"))
    decided = decide(stage, [record(0, n=1), record(1, n=0), record(2, n=2)])
    assert [row["offset"] for row in decided.quarantined] == [1]
    assert decided.emissions[-1]["value"]["xs"] == [0, 2]
    assert decided.states[-1]["accumulator"]["xs"] == [0, 2]


def test_failing_eviction_stops_without_quarantine() -> None:
    """Stop as a timer does: the wrong record came long before the record at hand."""
    first = ("field", ("call", "at", ("column", "events"), ("literal", 0)), "n")
    inverse = Condition("10 / events[0].n > 0", (">", ("/", ("literal", 10), first), ("literal", 0)))
    stage = kernel.Stage(kernel.Collect(), kernel.Threshold(max_bytes=120), where=inverse, name="full")
    error = failure(setting_aside(stage), *(record(offset, n=min(offset, 1)) for offset in range(12)))
    assert isinstance(error, ConditionFailed)
    assert "when the key 'k' goes out, by bytes" in error.what


def test_refusals_of_a_quarantined_record_are_undone() -> None:
    """Undo the refusal of the first window of a record that the second window cannot take."""
    at_least = kernel.RowExpectation("expect_column_values_to_be_between", ("n",), {"min_value": 0.0})
    stage = replace(setting_aside(UPDATE), window=kernel.Hopping(20, 10, 20), expectations=(at_least,))
    decided = decide(stage, [record(0, 25, n=-HUGE), record(1, 15, n=-2), record(2, 16, n=-1)])
    refused = [(row["offset"], row["window_start"], row["value"]["n"]) for row in decided.refused]
    assert refused == [(0, 10, -HUGE), (0, 20, -HUGE), (2, 0, -1), (2, 10, -HUGE - 1)]
    assert [row["offset"] for row in decided.quarantined] == [1]
    assert (decided.counts["refused"], decided.counts["used"]) == (4, 2)
