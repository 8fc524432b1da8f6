"""A table with `mode: history`: each version of a key with its validity, however batches were cut."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.sql.sink import STREAM, Sink, emission
from tidegate.errors import SinkRefused
from tidegate.sinks.sql.dialects import dialect_named
from tidegate.sinks.sql.progress import restart_after
from tidegate.sinks.sql.schema import check_emissions

HISTORIES = json.loads((Path(__file__).parents[2] / "conformance" / "dbt" / "histories.json").read_text())
SECOND = "visitors/2"
VALIDITY = ("valid_from", "valid_to", "is_current", "deleted")
Version = tuple[Any, ...]


def history(sink: Sink) -> dict[str, list[Version]]:
    """Key -> its versions as (value, valid_from, valid_to, is_current, deleted), in order of time."""
    versions: dict[str, list[Version]] = defaultdict(list)
    for row in sink.rows("valid_from, stream, batch, ordinal"):
        begin, end, is_current, is_deleted = (row[name] for name in VALIDITY)
        versions[row["key"]].append((row["n"], begin, end, bool(is_current), bool(is_deleted)))
    return dict(versions)


def naive(emissions: Sequence[Any]) -> dict[str, list[Version]]:
    """Return what a plain loop over each key's emissions gives; they are in the order in which they came."""
    by_key: dict[str, list[Any]] = defaultdict(list)
    for row in emissions:
        by_key[row["key"]].append(row)
    versions: dict[str, list[Version]] = {}
    for key, of_key in by_key.items():
        ordered = sorted(of_key, key=lambda row: row["timestamp"])  # stable: what came first is first
        ends = [*(row["timestamp"] for row in ordered[1:]), None]
        versions[key] = [
            (
                None if row["value"] is None else row["value"]["n"],
                row["timestamp"],
                end,
                end is None and row["value"] is not None,
                row["value"] is None,
            )
            for row, end in zip(ordered, ends, strict=True)
        ]
    return versions


def test_each_version_ends_where_the_next_begins(url: str) -> None:
    sink = Sink(url, mode="history")
    sink.publish(1, [emission("a", 1, at=10), emission("b", 5, at=11), emission("a", 2, at=20)])
    sink.publish(2, [emission("a", 3, at=30)], 1)
    assert history(sink) == {
        "a": [(1, 10, 20, False, False), (2, 20, 30, False, False), (3, 30, None, True, False)],
        "b": [(5, 11, None, True, False)],
    }


def test_deletion_ends_a_version_and_nothing_is_current(url: str) -> None:
    sink = Sink(url, mode="history")
    sink.publish(1, [emission("a", 1, at=10), emission("a", None, at=20)])
    assert history(sink)["a"] == [(1, 10, 20, False, False), (None, 20, None, False, True)]
    sink.publish(2, [emission("a", 2, at=40)], 1)
    assert history(sink)["a"] == [
        *((1, 10, 20, False, False), (None, 20, 40, False, True)),
        (2, 40, None, True, False),
    ]


def test_late_version_takes_its_place_in_time(url: str) -> None:
    sink = Sink(url, mode="history")
    sink.publish(1, [emission("a", 1, at=10), emission("a", 3, at=30)])
    sink.publish(2, [emission("a", 2, at=20), emission("a", 0, at=5)], 1)
    assert [version[:3] for version in history(sink)["a"]] == [
        *((0, 5, 10), (1, 10, 20)),
        *((2, 20, 30), (3, 30, None)),
    ]


def test_each_window_has_its_own_history(url: str) -> None:
    sink = Sink(url, mode="history", windowed=True)
    sink.publish(1, [emission("a", 1, at=10, window=0), emission("a", 2, at=20, window=10)])
    assert [row["is_current"] for row in sink.rows()] == [True, True]


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(6))
def test_any_cut_gives_a_plain_loops_history(url: str, seed: int) -> None:
    dice = random.Random(seed)
    emissions = [
        emission(dice.choice("abc"), dice.choice([None, 1, 2]), at=dice.randrange(12)) for _ in range(40)
    ]
    cuts = sorted({0, 40, *(dice.randrange(40) for _ in range(dice.randrange(8)))})
    sink = Sink(url, mode="history")
    for seq, (first, end) in enumerate(pairwise(cuts), start=1):
        sink.publish(seq, emissions[first:end], seq - 1)
    assert history(sink) == naive(emissions)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", HISTORIES)
def test_history_equals_a_snapshot_of_dbt(url: str, case: Mapping[str, Any]) -> None:
    sink, last = Sink(url, mode="history"), 0
    for seq, changes in enumerate(case["steps"], start=1):
        sink.publish(seq, [emission(key, value, at=1000 * at) for key, value, at in changes], last)
        last = seq
    versions: dict[str, list[Version]] = defaultdict(list)
    for row in case["versions"]:
        begin, end = (row[name] and 1000 * row[name] for name in ("valid_from", "valid_to"))
        # dbt repeats the last value beside a deletion
        value = None if row["deleted"] else row["n"]
        is_current = end is None and not row["deleted"]
        versions[row["key"]].append((value, begin, end, is_current, row["deleted"]))
    assert history(sink) == dict(versions)


def test_another_generation_continues_the_history(url: str) -> None:
    first = Sink(url, mode="history")
    first.publish(7, [emission("a", 1, at=10)])
    second = Sink(url, mode="history", stream=SECOND, shard="g2")
    second.publish(1, [emission("a", 2, at=10)])
    assert [version[:4] for version in history(second)["a"]] == [(1, 10, 10, False), (2, 10, None, True)]


def test_sending_again_takes_later_versions_back(url: str) -> None:
    sink = Sink(url, mode="history")
    sink.publish(1, [emission("a", 1, at=10)])
    sink.publish(2, [emission("a", 2, at=20)], 1)
    with sink.database() as database:
        restart_after(database, sink._shard, sink.layout().target, 1, "first")
    assert history(sink) == {"a": [(1, 10, None, True, False)]}
    assert sink.stream == STREAM


def test_table_of_appended_rows_becomes_a_history(url: str) -> None:
    Sink(url).publish(1, [emission("a", 1, at=10), emission("b", 1, at=10), emission("b", 2, at=15)])
    sink = Sink(url, mode="history")
    if url.startswith("mysql"):  # each column would be there at once, and its values only later
        with pytest.raises(SinkRefused, match="cannot turn it into a history in one transaction"):
            sink.publish(2, [emission("a", 2, at=20)], 1)
        return
    sink.publish(2, [emission("a", 2, at=20)], 1)
    assert [version[:4] for version in history(sink)["a"]] == [(1, 10, 20, False), (2, 20, None, True)]
    assert [version[:4] for version in history(sink)["b"]] == [(1, 10, 15, False), (2, 15, None, True)]


def test_longer_key_than_the_index_takes_is_refused(postgres_url: str) -> None:
    sink = Sink(postgres_url, mode="history")
    with pytest.raises(SinkRefused, match="a key has 3000 bytes"):
        check_emissions(dialect_named("postgresql"), sink.layout(), sink.batches([emission("k" * 3000, 1)]))
