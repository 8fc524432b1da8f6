"""Quarantine by conditions: list, counts and export, against a filter over all rows."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quarantines import HEADERS, Quarantined, quarantined, random_rows, stored_quarantine
from tidegate import quarantine
from tidegate.errors import LakeDamaged, SettingsInvalid
from tidegate.formats.decoded import Reason
from tidegate.quarantine import QuarantineFilter
from tidegate.quarantine.export import EXPORTED
from tidegate.quarantine.store import ALL
from tidegate.storage import datafile

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def random_quarantine(tmp_path_factory: pytest.TempPathFactory) -> Quarantined:
    """Five batches, of which the third has nothing in quarantine; row groups of seven rows."""
    made = Quarantined(tmp_path_factory.mktemp("quarantine"))
    chance = random.Random(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datafile, "ROW_GROUP_ROWS", 7)
        for seq in range(1, 6):
            files = [] if seq == 3 else [random_rows(seq, count, chance) for count in (20, 3)]
            made.batch(seq, *files)
    return made


def subsets(values: Sequence[Any]) -> st.SearchStrategy[frozenset[Any]]:
    return st.frozensets(st.sampled_from(values), max_size=3)


FILTERS = st.builds(
    QuarantineFilter,
    reasons=subsets(["malformed", "null_key", "key_not_text", Reason.TOO_LARGE, "future_timestamp"]),
    topics=subsets(["events", "visits", "none"]),
    partitions=subsets([0, 1, 2, 9]),
    first_batch=st.none() | st.integers(0, 7),
    last_batch=st.none() | st.integers(0, 7),
    since_ms=st.none() | st.integers(0, 6000),
    until_ms=st.none() | st.integers(0, 6000),
)


def naive(world: Quarantined, where: QuarantineFilter) -> Rows:
    """Return all rows that pass, read at once; the newest batch first, then by position."""
    rows = stored_quarantine(world.app, world.stream)
    passing = [row for row in rows if passes(row, where)]
    return sorted(passing, key=lambda row: (-row["seq"], row["topic"], row["partition"], row["offset"]))


def passes(row: dict[str, Any], where: QuarantineFilter) -> bool:
    time, is_timed = row["timestamp"], where.since_ms is not None or where.until_ms is not None
    return (
        (not where.reasons or row["reason"].split(":")[0] in where.reasons)
        and (not where.topics or row["topic"] in where.topics)
        and (not where.partitions or row["partition"] in where.partitions)
        and (where.first_batch is None or where.first_batch <= row["seq"])
        and (where.last_batch is None or row["seq"] <= where.last_batch)
        and (not is_timed or time is not None)
        and (where.since_ms is None or where.since_ms <= time)
        and (where.until_ms is None or time < where.until_ms)
    )


def listed(world: Quarantined, where: QuarantineFilter = ALL, limit: int = 50) -> Rows:
    tables = quarantine.list_quarantine(world.app, world.stream, where, limit)
    return [row for table in tables for row in table.to_pylist()]


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["seq"], row["topic"], row["partition"], row["offset"]


def exported_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the exported form of a row of quarantine."""
    reason, _, detail = row["reason"].partition(": ")
    exported = {**row, "batch": row["seq"], "reason": reason, "detail": detail or None}
    return {name: exported[name] for name in EXPORTED.names}


def as_set(rows: Rows) -> Counter[str]:
    return Counter(map(repr, rows))


@given(where=FILTERS, limit=st.integers(1, 120))
def test_list_equals_a_naive_filter_newest_first(
    random_quarantine: Quarantined, where: QuarantineFilter, limit: int
) -> None:
    expected = naive(random_quarantine, where)
    rows = listed(random_quarantine, where, limit)
    assert [place(row) for row in rows] == [place(row) for row in expected[:limit]]
    assert as_set(rows) <= as_set(expected)


@given(where=FILTERS, by=st.lists(st.sampled_from(["reason", "topic", "batch"]), min_size=1, max_size=3))
def test_counts_equal_a_naive_filter(
    random_quarantine: Quarantined, where: QuarantineFilter, by: list[Any]
) -> None:
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in naive(random_quarantine, where):
        columns = {"reason": row["reason"].split(":")[0], "topic": row["topic"], "batch": row["seq"]}
        group = tuple(columns[name] if name in by else None for name in columns)
        groups.setdefault(group, []).append(row)
    expected = set()
    for group, rows in groups.items():
        seqs = [row["seq"] for row in rows]
        times = [row["timestamp"] for row in rows if row["timestamp"] is not None] or [None]
        expected.add((*group, len(rows), min(seqs), max(seqs), min(times), max(times)))
    counts = quarantine.count_quarantine(random_quarantine.app, random_quarantine.stream, where, by)
    assert {tuple(vars(count).values()) for count in counts} == expected
    assert len(counts) == len(expected)


@given(where=FILTERS)
def test_both_exports_equal_a_naive_filter(random_quarantine: Quarantined, where: QuarantineFilter) -> None:
    expected = as_set([exported_row(row) for row in naive(random_quarantine, where)])
    for name, read in (("all.parquet", from_parquet), ("all.jsonl", from_lines)):
        path = random_quarantine.folder / name
        count = quarantine.export_quarantine(
            random_quarantine.app, random_quarantine.stream, path, where, overwrite=True
        )
        assert (count, as_set(read(path))) == (expected.total(), expected)


def from_parquet(path: Path) -> Rows:
    assert pq.read_schema(path).equals(EXPORTED)
    rows: Rows = pq.read_table(path).to_pylist()
    return rows


def from_lines(path: Path) -> Rows:
    """Return the rows of an export as JSON lines, with bytes as bytes."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    for row in rows:
        row["headers"] = [
            {"key": header["key"], "value": decoded(header, "value")} for header in row["headers"]
        ] or None
        for name in ("key", "value"):
            row[name] = decoded(row, name)
    return [{name: row[name] for name in EXPORTED.names} for row in rows]


def decoded(part: dict[str, Any], name: str) -> bytes | None:
    encoding, text = part[f"{name}_encoding"], part[name]
    if encoding is None:
        assert text is None
        return None
    return {"utf-8": str.encode, "base64": base64.b64decode}[encoding](text)


@pytest.fixture
def read_groups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, tuple[str, ...]]]:
    """Row groups that are read from now on, with the columns that are."""
    groups: list[tuple[int, tuple[str, ...]]] = []
    read = pq.ParquetFile.read_row_group

    def noted(file: pq.ParquetFile, number: int, columns: Sequence[str], **more: Any) -> Any:
        if columns:
            groups.append((number, tuple(columns)))
        return read(file, number, columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    return groups


def with_values(groups: list[tuple[int, tuple[str, ...]]]) -> list[int]:
    return [number for number, columns in groups if {"key", "value", "headers"} & set(columns)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Quarantined:
    """Two batches with six full row groups each, which no test changes."""
    made = Quarantined(tmp_path_factory.mktemp("large"))
    for seq in (1, 2):
        made.large_batch(seq, 6)
    return made


def test_limited_list_reads_one_row_group(
    large: Quarantined, read_groups: list[tuple[int, tuple[str, ...]]]
) -> None:
    assert [place(row) for row in listed(large, limit=3)] == [(2, "events", 0, n) for n in range(3)]
    assert with_values(read_groups) == [0]
    assert len(read_groups) == 6 + 1


def test_row_groups_outside_an_interval_are_skipped(
    large: Quarantined, read_groups: list[tuple[int, tuple[str, ...]]]
) -> None:
    first = 4 * datafile.ROW_GROUP_ROWS
    where = QuarantineFilter(since_ms=first, until_ms=first + 2, last_batch=1)
    assert [row["offset"] for row in listed(large, where)] == [first, first + 1]
    assert {number for number, _ in read_groups} == {4}


def test_counting_reads_neither_keys_nor_values(
    large: Quarantined, read_groups: list[tuple[int, tuple[str, ...]]]
) -> None:
    (count,) = quarantine.count_quarantine(large.app, large.stream)
    assert (count.reason, count.records) == ("malformed", 12 * datafile.ROW_GROUP_ROWS)
    assert (count.first_batch, count.last_batch, count.first_timestamp_ms) == (1, 2, 0)
    assert with_values(read_groups) == []


def test_export_reads_only_row_groups_with_records(
    large: Quarantined, read_groups: list[tuple[int, tuple[str, ...]]]
) -> None:
    where = QuarantineFilter(reasons={"null_key"})
    assert quarantine.export_quarantine(large.app, large.stream, large.folder / "a.jsonl", where) == 0
    assert with_values(read_groups) == []


@pytest.fixture
def small(tmp_path: Path) -> Quarantined:
    """A batch with one record, whose key is no text, with headers."""
    made = Quarantined(tmp_path)
    headers = [{"key": key, "value": value} for key, value in HEADERS]
    made.batch(1, [quarantined(1, 7, key=b"\xff", headers=headers)])
    return made


def test_exported_line_names_its_encoding_and_headers(small: Quarantined) -> None:
    path = small.folder / "a.jsonl"
    quarantine.export_quarantine(small.app, small.stream, path)
    assert json.loads(path.read_text()) == {
        "batch": 1,
        "topic": "events",
        "partition": 0,
        "offset": 7,
        "part": None,
        "timestamp": 7000,
        "reason": "malformed",
        "detail": "Expected `int`, got `str` - at `$.id`",
        "key": "/w==",
        "key_encoding": "base64",
        "value": "{oops",
        "value_encoding": "utf-8",
        "headers": [
            {"key": "trace", "value": "1", "value_encoding": "utf-8"},
            {"key": "trace", "value": "/w==", "value_encoding": "base64"},
            {"key": "empty", "value": None, "value_encoding": None},
            {"key": "trace", "value": "1", "value_encoding": "utf-8"},
        ],
    }


def test_export_keeps_an_existing_file_by_default(small: Quarantined) -> None:
    path = small.folder / "a.jsonl"
    path.write_text("mine")
    with pytest.raises(SettingsInvalid, match=r"already exists\. Name another file, or give --force"):
        quarantine.export_quarantine(small.app, small.stream, path)
    assert path.read_text() == "mine"
    assert quarantine.export_quarantine(small.app, small.stream, path, overwrite=True) == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_failed_export_leaves_the_existing_file(small: Quarantined, tmp_path: Path, name: str) -> None:
    small.batch(2, [quarantined(2, 1)])
    manifest = small.app.manifest(small.stream, dict(small.app.ledger.committed(small.stream))[2])
    (file,) = manifest.files_of("quarantine")
    small.app.lake(small.stream).store.delete(file.path)
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / name).write_text("mine")
    with pytest.raises(LakeDamaged, match="Batch 2 of visitors/1 needs it"):
        quarantine.export_quarantine(small.app, small.stream, folder / name, overwrite=True)
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "mine")]


def test_changed_page_is_damage_to_each_reader(small: Quarantined) -> None:
    manifest = small.app.manifest(small.stream, dict(small.app.ledger.committed(small.stream))[1])
    (file,) = manifest.files_of("quarantine")
    store = small.app.lake(small.stream).store
    content = bytearray(store.read(file.path))
    content[4 : len(content) - file.footer_bytes] = bytes(len(content) - file.footer_bytes - 4)
    store.write(file.path, bytes(content))
    readers: list[Callable[[], object]] = [
        lambda: listed(small),
        lambda: quarantine.count_quarantine(small.app, small.stream),
        lambda: quarantine.export_quarantine(small.app, small.stream, small.folder / "a.jsonl"),
    ]
    for read in readers:
        with pytest.raises(LakeDamaged, match="Batch 1 of visitors/1 needs it"):
            read()


@pytest.mark.parametrize("name", ["a.csv", "a", "a.JSONL"])
def test_unknown_file_ending_lists_the_existing_ones(small: Quarantined, name: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"does not end with \.jsonl or \.parquet"):
        quarantine.export_quarantine(small.app, small.stream, small.folder / name)


def test_a_folder_that_is_not_there_is_reported(small: Quarantined) -> None:
    with pytest.raises(SettingsInvalid, match="No such file or directory"):
        quarantine.export_quarantine(small.app, small.stream, small.folder / "no" / "a.jsonl")


def test_unknown_reason_lists_all_reasons() -> None:
    with pytest.raises(SettingsInvalid, match="no reason mallformed") as refused:
        QuarantineFilter(reasons={"mallformed", "null_key"})
    assert [reason for reason in Reason if str(reason) not in refused.value.fix] == []


def test_what_it_cannot_be_counted_by_is_refused(small: Quarantined) -> None:
    by: Any = ("key",)
    with pytest.raises(SettingsInvalid, match=r"by key\. It is counted by: reason, topic, batch"):
        quarantine.count_quarantine(small.app, small.stream, by=by)


def test_a_list_of_nothing_is_refused(small: Quarantined) -> None:
    with pytest.raises(SettingsInvalid, match="Ask for 1 or more"):
        listed(small, limit=0)


def test_keys_and_values_are_cut_on_request(small: Quarantined) -> None:
    (rows,) = quarantine.list_quarantine(small.app, small.stream, max_bytes=2)
    assert rows["value"].to_pylist() == [b"{o"]
