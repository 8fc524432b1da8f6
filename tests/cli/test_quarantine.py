"""The commands of `quarantine`: what they show and decide, without Kafka, Spark or a JVM."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.quarantines import Quarantined, quarantined
from tidegate.cli import cli
from tidegate.cli.output import out
from tidegate.errors import SettingsInvalid


@pytest.fixture
def world(tmp_path: Path) -> Quarantined:
    """Two batches: the older one has two records in one partition, the newer one a record in another."""
    made = Quarantined(tmp_path)
    made.batch(1, [quarantined(1, 1), quarantined(1, 0, reason="null_key", key=None)])
    made.batch(2, [quarantined(2, 5, partition=1, topic="visits", timestamp=90_000)])
    return made


def run(world: Quarantined, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["quarantine", *arguments], env=world.environment)


def lines(world: Quarantined, *arguments: str) -> list[dict[str, Any]]:
    """The records that `list` prints for programs."""
    result = run(world, "list", "visitors", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def offsets(world: Quarantined, *arguments: str) -> list[int]:
    return [record["offset"] for record in lines(world, *arguments)]


def test_quarantine_list_is_newest_first_by_position(world: Quarantined) -> None:
    assert [(record["batch"], record["offset"]) for record in lines(world)] == [(2, 5), (1, 0), (1, 1)]
    assert offsets(world, "--limit", "2") == [5, 0]
    shown = run(world, "list", "visitors", "--limit", "2").stdout.splitlines()
    assert shown[0].strip() == "The newest 2 records"
    assert [line.split()[:2] for line in shown[2:]] == [
        ["2", "visits/1/5"],
        ["1", "events/0/0"],
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--reason", "null_key"), [0]),
        (("--reason", "null_key", "--reason", "malformed"), [5, 0, 1]),
        (("--topic", "events"), [0, 1]),
        (("--partition", "1"), [5]),
        (("--batch", "2"), [5]),
        (("--batch", "..1"), [0, 1]),
        (("--batch", "2.."), [5]),
        (("--batch", "1..2"), [5, 0, 1]),
        (("--since", "1970-01-01T00:00:01Z"), [5, 1]),
        (("--until", "1970-01-01T00:00:01Z"), [0]),
        (("--topic", "events", "--reason", "malformed"), [1]),
    ],
)
def test_options_filter_list_count_and_export(
    world: Quarantined, arguments: tuple[str, ...], expected: list[int]
) -> None:
    assert offsets(world, *arguments) == expected
    counts = json.loads(run(world, "count", "visitors", *arguments, "--json").stdout)
    assert sum(count["records"] for count in counts) == len(expected)
    path = world.folder / "a.parquet"
    assert run(world, "export", "visitors", *arguments, "--to", str(path)).exit_code == 0
    assert sorted(pq.read_table(path)["offset"].to_pylist()) == sorted(expected)


@pytest.mark.parametrize("batches", ["1-2", "..", "a..b", "", "1..2..3"])
def test_invalid_batch_range_lists_the_forms(world: Quarantined, batches: str) -> None:
    error = run(world, "list", "visitors", "--batch", batches).exception
    assert isinstance(error, SettingsInvalid)
    assert error.fix == "Give 3..7 (7 included), 3.., ..7 or 3."


@pytest.mark.parametrize("command", [("list",), ("count",), ("export", "--to", "a.jsonl")])
def test_unknown_reason_lists_the_existing_ones(world: Quarantined, command: tuple[str, ...]) -> None:
    error = run(world, *command, "visitors", "--reason", "broken").exception
    assert isinstance(error, SettingsInvalid)
    assert "no reason broken. Its reasons are: malformed, " in str(error)


def test_json_has_one_object_per_line(world: Quarantined) -> None:
    path = world.folder / "a.jsonl"
    result = run(world, "export", "visitors", "--to", str(path), "--batch", "2")
    assert result.stdout == f"{path} has 1 record of visitors/1\n"
    assert [json.loads(path.read_text()) | {"status": "open"}] == lines(world, "--batch", "2")


def test_export_replaces_a_file_only_with_force(world: Quarantined) -> None:
    path = world.folder / "a.jsonl"
    arguments = ("export", "visitors", "--to", str(path))
    assert run(world, *arguments).exit_code == 0
    assert isinstance(run(world, *arguments, "--batch", "2").exception, SettingsInvalid)
    assert len(path.read_text().splitlines()) == 3
    assert run(world, *arguments, "--batch", "2", "--force").exit_code == 0
    assert len(path.read_text().splitlines()) == 1


def test_counts_are_grouped_by_reason_topic_batch(world: Quarantined) -> None:
    by_reason = json.loads(run(world, "count", "visitors", "--json").stdout)
    first, last = (
        {"first_batch": 1, "first_timestamp_ms": 1000},
        {"last_batch": 2, "last_timestamp_ms": 90_000},
    )
    assert by_reason[0] == {"reason": "malformed", "records": 2, **first, **last}
    assert [count["reason"] for count in by_reason] == ["malformed", "null_key"]
    by_both = run(world, "count", "visitors", "--by", "batch", "--by", "topic", "--json").stdout
    assert [(count["batch"], count["topic"], count["records"]) for count in json.loads(by_both)] == [
        (1, "events", 2),
        (2, "visits", 1),
    ]
    assert "1970-01-01T00:01:30.000Z" in run(world, "count", "visitors").stdout


@pytest.mark.parametrize("key", [b"[/x]", b"[red]k", b"\xff\x00\x1b[2J"], ids=str)
def test_raw_key_cannot_control_the_terminal(tmp_path: Path, key: bytes) -> None:
    world = Quarantined(tmp_path)
    world.batch(1, [quarantined(1, 0, key=key, reason="key_not_text")])
    (record,) = lines(world)
    decode = {"utf-8": str.encode, "base64": base64.b64decode}[record["key_encoding"]]
    assert decode(record["key"]) == key
    for_people = run(world, "list", "visitors").stdout
    escaped = key.decode(errors="backslashreplace").replace("\x00", "\\x00").replace("\x1b", "\\x1b")
    assert escaped in for_people
    assert "\x1b" not in for_people


@pytest.mark.parametrize("width", [80, 120])
def test_record_fits_one_terminal_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(out.console, "_width", width)
    world = Quarantined(tmp_path)
    value = b'{"a":\r\n\t1}' + b"x" * 5000
    world.batch(1, [quarantined(1, offset, value=value) for offset in range(3)])
    shown = run(world, "list", "visitors").stdout.splitlines()
    assert len(shown) == 2 + 3
    assert max(map(len, shown)) <= width
    assert all("1970-01-01T00:00:0" in line and "…" in line for line in shown[2:])
    assert (lines(world)[0]["value"]) == value.decode()


def test_before_anything_is_in_quarantine_nothing_is_shown(tmp_path: Path) -> None:
    world = Quarantined(tmp_path)
    assert lines(world) == []
    assert [run(world, command, "visitors").stdout for command in ("list", "count")] == ["Nothing.\n"] * 2
    path = tmp_path / "a.jsonl"
    assert run(world, "export", "visitors", "--to", str(path)).exit_code == 0
    assert path.read_text() == ""


def test_discarded_record_shows_who_and_why(world: Quarantined) -> None:
    world.lease.release()
    because = ("--because", "a test of the producer", "--by", "ada")
    result = run(world, "discard", "visitors", "--reason", "null_key", *because)
    assert result.stdout == "Discarded 1 record of visitors/1.\n"
    again = run(world, "discard", "visitors", *because)
    assert again.stdout == "Discarded 2 records of visitors/1.\n"
    assert run(world, "discard", "visitors", *because).stdout == "Discarded 0 records of visitors/1.\n"
    shown = json.loads(run(world, "history", "visitors", "events/0/0", "--json").stdout)
    assert [(event["what"], event["batch"], event["by"], event["reason"]) for event in shown] == [
        ("quarantined", 1, None, "null_key"),
        ("discarded", None, "ada", "a test of the producer"),
    ]
    assert shown[1]["at"] > 0
    for_people = run(world, "history", "visitors", "events/0/0").stdout
    assert "a test of the producer" in for_people
    assert "was never in quarantine" in run(world, "history", "visitors", "events/0/99").stdout


def test_status_is_listed_counted_and_not_exported(world: Quarantined) -> None:
    path = world.folder / "a.jsonl"
    assert run(world, "export", "visitors", "--topic", "events", "--to", str(path)).exit_code == 0
    world.lease.release()
    discarded = run(world, "discard", "visitors", "--from", str(path), "--because", "no use", "--json")
    assert json.loads(discarded.stdout) == {"discarded": 2, "resolved_before": 0}
    statuses = {record["offset"]: record["status"] for record in lines(world)}
    assert statuses == {5: "open", 0: "discarded", 1: "discarded"}
    counts = json.loads(run(world, "count", "visitors", "--by", "status", "--json").stdout)
    assert [(count["status"], count["records"]) for count in counts] == [
        ("open", 1),
        ("replayed", 0),
        ("discarded", 2),
    ]
    run(world, "export", "visitors", "--open", "--to", str(path), "--force")
    assert [json.loads(line)["offset"] for line in path.read_text().splitlines()] == [5]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("history", "visitors", "events/0"), "is not a position"),
        (("count", "visitors", "--by", "status", "--by", "reason"), "stands alone"),
        (("discard", "visitors", "--from", "{file}", "--topic", "a", "--because", "b"), "says itself"),
        (("replay", "visitors", "--set", "n = 1"), "DuckDB cannot evaluate `n = 1`"),
        (("replay", "visitors", "--set-key", "17"), "A key is text"),
        (("replay", "visitors", "--generation", "7"), "is of generation 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(world: Quarantined, arguments: tuple[str, ...], why: str) -> None:
    path = world.folder / "a.jsonl"
    path.write_text("")
    result = run(world, *(argument.format(file=path) for argument in arguments))
    assert result.exit_code != 0
    assert why in (str(result.exception) + result.output)
