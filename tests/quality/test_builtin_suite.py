"""Built-in expectations in suite files, evaluated by Great Expectations itself over committed batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import update

from tests.batch.committed import Committed, Row
from tests.cli.test_check import SINKS, check_rows, write_suite
from tidegate.batch.validate import validate_batch
from tidegate.errors import QualityFailed
from tidegate.kernel.keys import key_hashes
from tidegate.ledger import schema
from tidegate.quality.facts import BUILTIN_TYPES, current_facts

STATE = pa.schema(
    [
        *((name, pa.int64()) for name in ("hash", "window_start", "window_end", "timestamp", "updated_seq")),
        ("key", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("live", pa.bool_()),
        ("emitted", pa.struct([("m", pa.int32())])),
    ]
)


class Promised(Committed):
    """Batches of a stage that emits on change, or as its windows close, with the counts that a test gives."""

    def __init__(self, folder: Path, emit: str = "on: change") -> None:
        super().__init__(folder, SINKS, f"sqlite:///{folder}/sink.db")
        self.file.write_text(self.file.read_text().replace("emit: {on: change}", f"emit: {{{emit}}}"))

    def batch(self, seq: int, rows: Sequence[Row], **whole: int) -> None:
        """`whole`: counts of the batch; what is not given adds up."""
        self.commit(seq, {"second": rows})
        lost = sum(whole.get(name, 0) for name in ("quarantined", "expired-window-record-drop"))
        used = whole.pop("used", 200 - lost)
        counts = {"read": whole.pop("read", 200), "used": used, **whole}
        emitted = whole.get("emitted", len(rows))
        fates = {name: number for name, number in whole.items() if name != "emitted"}
        stages = {"first": {"used": used, "emitted": 1, **fates}, "second": {"emitted": emitted}}
        with self.app.ledger._engine.begin() as connection:
            table = schema.attempts
            connection.execute(update(table).where(table.c.seq == seq).values(counts={"": counts, **stages}))

    def remember(self, seq: int, key: str, emitted: int) -> None:
        """The state of a key, as a batch has left it."""
        row = {"key": key, "live": True, "emitted": {"m": emitted}, "updated_seq": seq, "timestamp": 0}
        table = pa.Table.from_pylist([{**row, "topic": "events", "partition": 0}], STATE)
        table = table.set_column(0, "hash", key_hashes(table["key"].combine_chunks()))
        self.add_file(seq, "state", "second", table)

    def check(self, type_: str, seq: int, **kwargs: Any) -> dict[str, Any]:
        write_suite(self.folder, "promised", {"type": type_, "kwargs": kwargs})
        (result,) = check_rows(self, "--suite", "promised", "--batch", f"{seq}")
        return result


@pytest.fixture
def promised(tmp_path: Path) -> Promised:
    return Promised(tmp_path)


def test_equal_neighbours_are_reported_in_and_across_batches(promised: Promised) -> None:
    promised.batch(1, [("a", 1), ("a", 2), ("a", 1)])
    promised.remember(1, "a", 1)
    promised.batch(2, [("a", 3), ("a", 3)])
    promised.batch(3, [("a", 1)])
    name = "expect_equal_neighbours_to_be_absent"
    assert promised.check(name, 1)["passed"]
    twice = promised.check(name, 2)
    assert (twice["passed"], twice["unexpected"], twice["rows"], twice["failing"]) == (
        False,
        1,
        2,
        [{"key": "a"}],
    )
    assert promised.check(name, 3)["unexpected"] == 1  # by the state, which only batch 1 has changed
    assert promised.check(name, 3, with_state=False)["passed"]


def test_repeated_final_is_found_in_earlier_batches(tmp_path: Path) -> None:
    made = Promised(tmp_path, "on: window_close}, window: {tumbling: 1h")
    made.batch(1, [("a", 1)])
    made.batch(2, [("b", 1)])
    made.batch(3, [("a", 2), ("c", 1)])
    made.batch(4, [("d", 1), ("d", 2)])
    name = "expect_one_final_per_window_and_key"
    assert made.check(name, 3)["passed"]
    again = made.check(name, 3, batches=2)
    assert (again["passed"], again["unexpected"], again["failing"]) == (False, 1, [{"key": "a"}])
    assert made.check(name, 4, batches=0)["failing"] == [{"key": "d"}]


def test_expectation_of_another_strategy_says_so(promised: Promised) -> None:
    promised.batch(1, [("a", 1)])
    result = promised.check("expect_one_final_per_window_and_key", 1)
    assert not result["passed"]
    assert "the stage second does not emit `on: window_close`" in result["error"]


def test_keys_are_not_null(promised: Promised) -> None:
    promised.batch(1, [("a", 1)])
    assert promised.check("expect_keys_to_not_be_null", 1)["passed"]


def test_broken_sums_of_counts_are_reported(promised: Promised) -> None:
    promised.batch(1, [("a", 1)], quarantined=5)
    promised.batch(2, [("a", 2)], read=201)
    promised.batch(3, [("a", 3)], emitted=2)
    name = "expect_counts_to_add_up"
    assert [promised.check(name, seq)["passed"] for seq in (1, 2, 3)] == [True, False, False]
    assert "201 came in: 200 used" in promised.check(name, 2)["observed"]
    assert "2 go out, the outbox has 1" in promised.check(name, 3)["observed"]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("expect_late_share_to_be_at_most", "expired-window-record-drop"),
        ("expect_quarantined_share_to_be_at_most", "quarantined"),
    ],
)
def test_shares_of_what_came_in_are_bounded(promised: Promised, name: str, count: str) -> None:
    promised.batch(1, [("a", 1)], **{count: 4})
    assert [promised.check(name, 1, max_share=most)["passed"] for most in (0.02, 0.019)] == [True, False]
    assert promised.check(name, 1, max_share=1)["observed"] == "0.02"


def test_emitted_share_is_compared_with_earlier_batches(promised: Promised) -> None:
    for seq in range(1, 7):
        promised.batch(seq, [(f"k{at}", seq) for at in range(40)])
    promised.batch(7, [("a", 1)])
    name = "expect_emitted_share_to_be_as_before"
    assert promised.check(name, 6)["passed"]
    low = promised.check(name, 7)
    assert (low["passed"], low["observed"]) == (False, "0.0050; 6 earlier batches: 0.1500 to 0.2500")
    assert promised.check(name, 7, batches=4)["passed"]
    assert promised.check(name, 7, slack=0.2)["passed"]


def test_great_expectations_reads_writes_and_renders_it() -> None:
    import tidegate.quality.builtin  # noqa: F401
    from tidegate.quality.expectations import gx

    bounded = {name: {"max_share": 0.1} for name in BUILTIN_TYPES if "share_to_be_at_most" in name}
    written = [{"type": name, "kwargs": bounded.get(name, {})} for name in BUILTIN_TYPES]
    suite = gx.ExpectationSuite(name="promised", expectations=written)
    stored = json.loads(json.dumps(suite.to_json_dict()))
    assert [expectation["type"] for expectation in stored["expectations"]] == list(BUILTIN_TYPES)
    page = gx.render.renderer.ExpectationSuitePageRenderer().render(suite).to_json_dict()
    text = json.dumps(page)
    assert "Few records are late. (max_share: $max_share)" in text
    assert text.count("A window of a key is final once.") == 1


def test_outside_a_batch_it_says_what_it_needs() -> None:
    import tidegate.quality.builtin as builtin

    assert current_facts() is None
    with pytest.raises(ValueError, match="only the validate step and `tidegate check`"):
        builtin.ExpectCountsToAddUp()._validate({})


def test_suite_parameters_are_put_in() -> None:
    import tidegate.quality.builtin as builtin
    from tidegate.quality.expectations import gx
    from tidegate.quality.facts import BatchCounts, StageFacts, provide_facts

    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    rows = asset.add_batch_definition_whole_dataframe("all").get_batch(
        batch_parameters={"dataframe": pa.table({"a": [1]}).to_pandas()}
    )
    expectation = builtin.ExpectLateShareToBeAtMost(max_share={"$PARAMETER": "most"})
    facts = StageFacts(None, BatchCounts(100, 90, 0, 0, 10, 0, 0, late_in_stages=10), None)  # type: ignore[arg-type]
    for most, passed in ((0.1, True), (0.05, False)):
        with provide_facts(facts):
            result = rows.validate(expectation, expectation_parameters={"most": most})
        assert result.success == passed


def test_the_gate_evaluates_them_over_the_computed_batch(promised: Promised) -> None:
    promised.file.write_text(promised.file.read_text() + "quality: {suite: promised}\n")
    name = "expect_equal_neighbours_to_be_absent"
    write_suite(promised.folder, "promised", {"type": name, "kwargs": {}})
    promised.batch(1, [("a", 1)])
    promised.remember(1, "a", 1)
    plan = promised.compute(2, {"second": [("a", 1)]})
    with pytest.raises(QualityFailed, match=rf"{name}.*1 unexpected"):
        validate_batch(promised.app, plan, "test")
    (result,) = promised.app.ledger.quality(promised.stream, 2)
    assert (result.type, result.unexpected_rows, result.failing) == (name, 1, ({"key": "a"},))
    assert result.page is not None
    page = (promised.folder / "data_docs" / result.page).read_text()
    assert "An emission differs from the one of its key before." in page
