"""`tidegate shadow` on a real broker: another job's topic against what the pipeline would send."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.world import NOW_MS, World, key_of
from tidegate.cli import cli
from tidegate.errors import SettingsInvalid

pytestmark = [pytest.mark.spark, pytest.mark.broker]

QUANTITIES = (10, 5, 0, 3, 0, 0, 7)
CHANGES = ((0, True), (2, False), (3, True), (4, False), (6, True))
"""What `availability` emits for them: the number of the record, and the value."""


def stock(world: World, products: Iterable[int] = (1, 2)) -> None:
    """Send the quantities of some products, a second apart."""
    for number, quantity in enumerate(QUANTITIES):
        for product in products:
            world.stock(quantity, product=product, timestamp_ms=at(number))


def at(number: int) -> int:
    return NOW_MS - 100_000 + 1000 * number


def sent(world: World, number: int, value: Any, product: int = 1, **more: Any) -> dict[str, Any]:
    """A record of the other job."""
    body = value if value is None or isinstance(value, (bytes, dict)) else {"isAvailable": value}
    record = {"topic": world.sink, "key": key_of(product=product).encode(), "timestamp_ms": at(number)}
    return record | {"value": body} | more


def shadow(world: World, *arguments: str, code: int = 0) -> Any:
    command = ["shadow", "availability", "--against", world.sink, "--no-explain", "--json", *arguments]
    result = CliRunner().invoke(cli, command, env=world.environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def class_counts(report: dict[str, Any]) -> dict[str, int]:
    return {name: number for name, number in report["counts"].items() if number}


def refusal(world: World, *arguments: str) -> str:
    command = ["shadow", "availability", "--against", world.sink, *arguments]
    error = CliRunner().invoke(cli, command, env=world.environment).exception
    assert isinstance(error, SettingsInvalid), error
    return str(error)


def test_equal_job_is_equal_and_nothing_is_written(world: World) -> None:
    stock(world)
    world.send(*(sent(world, *change, product) for change in CHANGES for product in (1, 2)))
    before = sorted(world.folder.rglob("*"))
    report = shadow(world)
    assert class_counts(report) == {"equal": 10}
    assert (report["differs"], report["tidegate"], report["other"]) == (False, 10, 10)
    assert sorted(world.folder.rglob("*")) == before


def test_faults_of_a_job_are_counted_with_examples(world: World, tmp_path: Path) -> None:
    stock(world)
    world.send(
        sent(world, 0, True),
        sent(world, 0, True),  # twice
        sent(world, 2, False),
        # the change of record 3 is dropped
        sent(world, 4, True),  # another value
        sent(world, 6, True),
        sent(world, 2, False, 2),
        sent(world, 0, True, 2),  # too late
        sent(world, 3, b"{oops", 2),
        sent(world, 4, False, 2),
        sent(world, 9, False, 2),  # nobody knows why
    )
    page = tmp_path / "report.html"
    report = shadow(world, "--html", str(page), "--explain", code=4)
    assert class_counts(report) == {
        "equal": 5,
        "late": 1,
        "different": 2,
        "missing": 2,
        "extra": 1,
        "unreadable": 1,
    }
    examples = {example["class"]: example for example in reversed(report["examples"])}
    assert examples["different"]["tidegate"] == {
        "value": {"isAvailable": False},
        "timestamp": at(4),
        "source": f"{world.source}/0/8",
    }
    assert examples["different"]["other"]["value"] == {"isAvailable": True}
    (reason,) = report["unreadable"].values()
    assert reason.startswith("malformed")
    assert [event["fate"] for event in report["explained"]["missing"]] == ["changed", "changed"]
    text = page.read_text()
    assert "<td" in text
    assert "the value" in text
    assert "<script" not in text


def test_job_that_is_behind_misses_nothing(world: World) -> None:
    stock(world, (1,))
    world.send(*(sent(world, *change) for change in CHANGES[:3]))
    assert class_counts(shadow(world)) == {"equal": 3, "not_yet_comparable": 2}


def test_end_before_the_job_leaves_its_later_records(world: World) -> None:
    stock(world, (1,))
    world.send(*(sent(world, *change) for change in CHANGES))
    report = shadow(world, "--until", f"{world.source}/0/4")
    assert class_counts(report) == {"equal": 3, "not_yet_comparable": 2}


def test_source_positions_in_a_header_bound_the_comparison(world: World) -> None:
    stock(world, (1,))
    placed: dict[int, Any] = {
        number: {"headers": [("from", f"{world.source}/0/{number}".encode())]} for number, _ in CHANGES
    }
    # The job's own timestamps say nothing; its third value is wrong.
    values = [True, False, False, False]
    world.send(
        *(
            sent(world, 50, value, timestamp_ms=NOW_MS - 5, **placed[number])
            for (number, _), value in zip(CHANGES, values, strict=False)
        )
    )
    report = shadow(world, "--position", "header:from", code=4)
    assert class_counts(report) == {"equal": 3, "different": 1, "not_yet_comparable": 1}
    assert "source offsets that the records" in " ".join(report["notes"])


def test_output_of_tidegate_equals_its_shadow(world: World) -> None:
    stock(world)
    world.run()
    report = shadow(world)
    assert class_counts(report) == {"equal": 10}
    assert "source offsets that the records" in " ".join(report["notes"])


def test_other_names_keys_and_ignored_columns_fit(world: World) -> None:
    edits: dict[str, Any] = {
        'quantity > 0"': 'quantity > 0", seen: quantity',
        "equal: exact": "ignore: [seen]",
    }
    world.write_pipeline(**edits)
    stock(world, (1,))
    values = [{"AVAILABLE": value, "seen": -1, "storeId": "s1", "id": 1} for _, value in CHANGES]
    world.send(
        *(sent(world, number, body, key=b"any") for (number, _), body in zip(CHANGES, values, strict=True))
    )
    options = ("--key", "storeId,id", "--alias", "isAvailable=AVAILABLE")
    assert class_counts(shadow(world, *options, "--ignore", "seen")) == {"equal": 5}
    tolerant = shadow(world, *options, "--equal", "within: {seen: 100}")
    assert class_counts(tolerant) == {"equal": 5}
    assert class_counts(shadow(world, *options, code=4)) == {"different": 5}


def test_compacted_topic_may_lack_intermediate_results(world: World) -> None:
    world.configure(world.sink, {"cleanup.policy": "compact"})
    stock(world, (1,))
    world.send(sent(world, *CHANGES[-1]))
    assert class_counts(shadow(world)) == {"equal": 1, "superseded": 4}


def test_impossible_comparisons_are_refused_with_a_remedy(world: World) -> None:
    assert "emits nothing up to there" in refusal(world)
    stock(world, (1,))
    world.send(sent(world, 0, True))
    assert "--max-records is 3" in refusal(world, "--max-records", "3")
    assert "It has: availability." in refusal(world, "--stage", "nope")
    assert "cannot be read like this" in refusal(world, "--ignore", "nope")
    assert "has no window" in refusal(world, "--windowed-keys")
    assert "is no duration" in refusal(world, "--within", "soon")
    assert "TOPIC/PARTITION/OFFSET" in refusal(world, "--from", "yesterday")


def test_report_for_people_names_classes_and_decisions(world: World) -> None:
    stock(world, (1,))
    world.send(*(sent(world, *change) for change in CHANGES if change[0] != 3))
    command = ["shadow", "availability", "--against", world.sink]
    result = CliRunner().invoke(cli, command, env=world.environment)
    assert result.exit_code == 4
    for text in ("missing", "Only tidegate would send it.", "Examples", "What tidegate decided", "went out"):
        assert text in result.output


def test_later_start_leaves_out_what_is_before(world: World) -> None:
    stock(world, (1,))
    world.send(*(sent(world, *change) for change in CHANGES))
    report = shadow(world, "--from", f"{world.source}/0/2")
    assert class_counts(report) == {"before_start": 1, "equal": 4}
    assert "begins with an empty state" in " ".join(report["notes"])
    world.delete_records({(world.sink, 0): 2})
    assert class_counts(shadow(world)) == {"before_start": 2, "equal": 3}
