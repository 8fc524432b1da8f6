"""The other job's topic: its formats, keys and positions, as a user describes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.shadow.emissions import emission
from tidegate.errors import SettingsInvalid
from tidegate.formats import Records
from tidegate.model.pipeline import Pipeline
from tidegate.shadow.emission import SentEmission
from tidegate.shadow.report import rules_of
from tidegate.shadow.topic import OtherTopic, TopicReader
from tidegate.yaml.load import parse_tree
from tidegate.yaml.tree import read

VALUE = pa.struct([("total", pa.int64())])
TEXT_KEY = pa.struct([("key", pa.string())])
TWO_COLUMNS = pa.struct([("store", pa.string()), ("id", pa.int64())])
SESSION = "window: {session: 10s}"
TUMBLING = "window: {tumbling: 10s}"


def pipeline(window: str = "") -> Pipeline:
    """The pipeline that is compared."""
    text = f"""\
pipeline: totals
source: {{topics: [orders], format: json, columns: "amount bigint"}}
stages:
  - name: totals
    {window}
    reduce: {{total: sum(amount)}}
    emit: {{on: update}}
"""
    return parse_tree(read(text, "totals.yaml"), text, in_case=True)


def read_record(
    other: OtherTopic,
    key: bytes | None,
    value: bytes | None,
    *,
    keys: pa.StructType = TEXT_KEY,
    headers: list[tuple[str, bytes]] | None = None,
    window: str = "",
) -> SentEmission | str:
    """Return the emission that a record is, or why it cannot be read."""
    source = other.pipeline(VALUE, keys).sources["source"]
    reader = TopicReader(other, source, pipeline(window).stages[0], ["total"], ["orders"])
    reader.add(Records("out", 1, [7], [1000], [key], [value], [headers]))
    return reader.emissions[0] if reader.emissions else reader.unreadable["out", 1, 7]


def test_record_becomes_an_emission_with_its_place() -> None:
    read_one = read_record(OtherTopic("out"), b"ada", b'{"total": 5, "other": 1}')
    assert read_one == SentEmission("ada", None, {"total": 5}, 1000, 1000, None, ("out", 1, 7))
    deleted = read_record(OtherTopic("out"), b"ada", None)
    assert isinstance(deleted, SentEmission)
    assert deleted.value is None
    assert str(read_record(OtherTopic("out"), b"ada", b"{oops")).startswith("malformed")
    assert read_record(OtherTopic("out"), None, b"{}") == "null_key"


@pytest.mark.parametrize(
    ("source", "key", "value", "keys", "expected"),
    [
        pytest.param(
            {"key_format": "kafka"},
            (7).to_bytes(8, "big"),
            b'{"total": 5}',
            [("id", pa.int64())],
            "7",
            id="number",
        ),
        pytest.param(
            {"key_format": "json"},
            b'{ "id": 7, "store": "s1" }',
            b'{"total": 5}',
            TWO_COLUMNS,
            '{"store":"s1","id":7}',
            id="object",
        ),
        pytest.param(
            {"key": ["store", "id"]},
            b"any",
            b'{"total": 5, "store": "s1", "id": 7}',
            TWO_COLUMNS,
            '{"store":"s1","id":7}',
            id="of the value",
        ),
        pytest.param(
            {}, b'{"store":"s1","id":7}', b'{"total": 5}', TWO_COLUMNS, '{"store":"s1","id":7}', id="own"
        ),
        pytest.param({"aliases": {"total": ["TOTAL"]}}, b"ada", b'{"TOTAL": 5}', TEXT_KEY, "ada", id="alias"),
    ],
)
def test_keys_and_columns_become_those_of_the_pipeline(
    source: dict[str, Any], key: bytes, value: bytes, keys: Any, expected: str
) -> None:
    read_one = read_record(OtherTopic("out", source), key, value, keys=pa.struct(list(keys)))
    assert isinstance(read_one, SentEmission), read_one
    assert (read_one.key, read_one.value) == (expected, {"total": 5})


def test_windowed_keys_end_with_their_window() -> None:
    start, end = (number.to_bytes(8, "big") for number in (20_000, 30_000))
    windowed = OtherTopic("out", windowed_keys=True)
    timed = read_record(windowed, b"ada" + start, b'{"total": 5}', window=TUMBLING)
    session = read_record(windowed, b"ada" + end + start, b'{"total": 5}', window=SESSION)
    assert isinstance(timed, SentEmission)
    assert isinstance(session, SentEmission)
    assert (timed.entry, session.entry) == (("ada", (20_000, None)), ("ada", (20_000, 30_000)))
    with pytest.raises(SettingsInvalid, match="has no window"):
        read_record(windowed, b"ada" + start, b"{}")


@pytest.mark.parametrize(
    ("position", "value", "headers", "expected"),
    [
        (None, b'{"total": 5}', [("tidegate-source", b"first/0/1;orders/2/3")], ("orders", 2, 3)),
        (None, b'{"total": 5}', [("tidegate-source", b"elsewhere/0/1")], None),
        ("header:from", b'{"total": 5}', [("from", b"orders/2/3")], ("orders", 2, 3)),
        ("header:from", b'{"total": 5}', [], None),
        ("at", b'{"total": 5, "at": "orders/2/3"}', [], ("orders", 2, 3)),
        ("p,o", b'{"total": 5, "p": 2, "o": 3}', [], ("orders", 2, 3)),
        ("t,p,o", b'{"total": 5, "t": "orders", "p": 2, "o": 3}', [], ("orders", 2, 3)),
        ("p,o", b'{"total": 5, "p": null, "o": 3}', [], None),
    ],
)
def test_source_position_is_read_from_headers_and_columns(
    position: str | None, value: bytes, headers: list[tuple[str, bytes]], expected: Any
) -> None:
    read_one = read_record(OtherTopic("out", position=position), b"ada", value, headers=headers)
    assert isinstance(read_one, SentEmission)
    assert (read_one.source, read_one.value) == (expected, {"total": 5})


@pytest.mark.parametrize(
    ("source", "more", "message"),
    [
        ({"format": "xml"}, {}, "source.format"),
        ({"registry": {}}, {"ignore": ("nope",)}, "ignore"),
        ({}, {"equal": "within: {nope: 1}"}, "nope"),
    ],
)
def test_option_that_does_not_fit_is_named(
    source: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsInvalid, match="Correct the options of the command") as raised:
        OtherTopic("out", source, **more).pipeline(VALUE, TEXT_KEY)
    assert message in str(raised.value)


def test_another_key_than_the_pipelines_is_refused() -> None:
    for key in (["id"], ["store", "other"]):
        with pytest.raises(SettingsInvalid, match="is not the key of the pipeline"):
            OtherTopic("out", {"key": key}).pipeline(VALUE, TWO_COLUMNS)
    swapped = OtherTopic("out", {"key": ["id", "store"]}).pipeline(VALUE, TWO_COLUMNS)
    assert swapped.sources["source"].key == ("store", "id")


def test_formats_with_a_registry_need_no_schema_file() -> None:
    source = {"format": "avro", "registry": {"connection": None}}
    assert OtherTopic("out", source).pipeline(VALUE, TEXT_KEY).sources["source"].subjects == ("out-value",)


@pytest.mark.parametrize("equal", ["within: {total: 2}", "sql: abs(old.total - new.total) <= 2"])
def test_tolerances_of_a_pipeline_compare_emissions(equal: str) -> None:
    reading = OtherTopic("out", equal=equal).pipeline(VALUE, TEXT_KEY)
    rules = rules_of(reading, VALUE, None, intermediate=False)
    assert rules.same is not None
    assert [rules.same({"total": 5}, {"total": other}, 0, 0) for other in (7, 8)] == [True, False]
    assert rules.text(emission(None, 1)) is None
