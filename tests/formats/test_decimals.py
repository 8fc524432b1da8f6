"""Decimals are exact wherever they pass: read, written, summed up, and compared in cases."""

from __future__ import annotations

import io
import json
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.formats.avro import AvroDecoder
from tidegate.formats.avro.schema import parse_avro
from tidegate.formats.avro.write import avro_writer
from tidegate.kernel.aggregates import FUNCTIONS
from tidegate.spark.case_parts import Outcome, emitted_of
from tidegate.spark.cases import against_expectation
from tidegate.spark.shuffle import value_column
from tidegate.yaml.cases import CaseRecord, load_cases, parse_input
from tidegate.yaml.load import parse_case_pipeline

_WIDE = Context(prec=100)
_LARGEST = 10**38 - 1


def avro_schema(scale: int, **type_: Any) -> Any:
    decimal = {"logicalType": "decimal", "precision": 38, "scale": scale, **(type_ or {"type": "bytes"})}
    return {"type": "record", "name": "R", "fields": [{"name": "d", "type": decimal}]}


def encoded(number: int, size: int) -> bytes:
    return bytes([size * 2]) + number.to_bytes(size, "big", signed=True)


def decode(values: list[bytes], scale: int, column: pa.DataType) -> tuple[list[Any], dict[int, str]]:
    decoder = AvroDecoder(pa.schema([("d", column)]), parse_avro(json.dumps(avro_schema(scale))))
    decoded = decoder.decode(values)
    decoded.columns.validate(full=True)
    return [row and row["d"] for row in decoded.columns.to_pylist()], dict(decoded.reasons)


numbers = st.one_of(st.integers(-_LARGEST, _LARGEST), st.integers(-(2**127), 2**127 - 1), st.integers(-9, 9))


@examples(200)
@given(
    numbers=st.lists(st.tuples(numbers, st.integers(16, 20)), min_size=1, max_size=5),
    scale=st.integers(0, 38),
    column=st.tuples(st.integers(1, 38), st.integers(0, 38)).filter(lambda pair: pair[1] <= pair[0]),
)
def test_avro_decimals_are_those_of_exact_arithmetic(
    numbers: list[tuple[int, int]], scale: int, column: tuple[int, int]
) -> None:
    values, reasons = decode([encoded(*pair) for pair in numbers], scale, pa.decimal128(*column))
    for row, (number, _) in enumerate(numbers):
        expected = Decimal(number).scaleb(-scale, _WIDE)
        whole = expected.scaleb(column[1], _WIDE)
        if whole == whole.to_integral_value() and abs(int(whole)) < 10 ** column[0]:
            assert (values[row], row in reasons) == (expected, False)
        else:
            assert reasons[row].startswith("malformed: A value does not fit into `decimal128(")


@pytest.mark.parametrize("neighbour", [encoded(5, 17), b"\0", encoded(2**127 - 1, 16)])
def test_avro_decimals_do_not_depend_on_neighbours(neighbour: bytes) -> None:
    number = encoded(12345678901234567890123456789012345678, 16)
    values, _ = decode([number, neighbour], 10, pa.decimal128(38, 10))
    assert values[0] == Decimal("1234567890123456789012345678.9012345678")


@pytest.mark.parametrize("column", [(1, 0), (38, 0)])
def test_the_least_128_bit_number_is_unusable(column: tuple[int, int]) -> None:
    _, reasons = decode([encoded(-(2**127), 16), encoded(5, 16)], 0, pa.decimal128(*column))
    text = f"decimal128({column[0]}, {column[1]})"
    assert reasons == {0: f"malformed: A value does not fit into `{text}` - at `$.d`"}


def test_decimals_without_bytes_are_unusable() -> None:
    assert decode([b"\0"], 2, pa.decimal128(38, 2))[1] == {0: "malformed: A decimal has no bytes - at `$.d`"}


def test_a_decimal_of_a_megabyte_is_unusable() -> None:
    size = 2**20
    length = bytes([0x80, 0x80, 0x80, 0x01])  # 2 * size, as Avro writes it
    values, reasons = decode([length + b"\x01" * size], 2, pa.decimal128(38, 2))
    assert values == [None]
    assert reasons[0].startswith("malformed: A value does not fit")


@examples(100)
@given(number=st.integers(-_LARGEST, _LARGEST), scale=st.integers(0, 38), fixed=st.booleans())
def test_written_avro_decimals_are_those_of_fastavro(number: int, scale: int, fixed: bool) -> None:
    kind = {"type": "fixed", "name": "F", "size": 20} if fixed else {"type": "bytes"}
    schema = avro_schema(scale, **kind)
    value = Decimal(number).scaleb(-scale, _WIDE)
    columns = pa.schema([("d", pa.decimal128(38, scale))])
    rows = pa.StructArray.from_arrays([pa.array([value], columns.field(0).type)], fields=list(columns))
    written = avro_writer(parse_avro(json.dumps(schema)), columns)(rows)[0].as_py()
    with localcontext(_WIDE):
        assert fastavro.schemaless_reader(io.BytesIO(written), schema, None) == {"d": value}


@pytest.mark.parametrize("type_", [(30, 5), (38, 0), (38, 38), (38, 20), (35, 10)])
def test_sums_that_fit_are_accepted(type_: tuple[int, int]) -> None:
    column = pa.field("x", pa.decimal128(*type_))
    fits, result = FUNCTIONS["sum"].fits(column), FUNCTIONS["sum"].result_type(column)
    largest = Decimal(10**result.precision - 1).scaleb(-result.scale, _WIDE)
    more = Decimal(10**result.precision).scaleb(-result.scale, _WIDE)
    assert fits is not None
    assert [fits(largest), fits(largest.copy_negate()), fits(more)] == [True, True, False]


def test_averages_that_fit_are_accepted() -> None:
    fits = FUNCTIONS["avg"].fits(pa.field("x", pa.decimal128(28, 2)))
    assert fits is not None
    assert fits((Decimal("99999999999999999999999999.99"), 1))


PIPELINE = {
    "pipeline": "case",
    "source": {"topics": ["in"], "format": "json", "columns": "d decimal(20,2)"},
    "stages": [{"name": "out", "emit": {"on": "update"}}],
}


def emitted(value: Decimal) -> Outcome:
    columns: dict[str, pa.Array] = {
        "key": pa.array(["a"]),
        value_column(0): pa.array([{"d": value}], pa.struct([("d", pa.decimal128(20, 2))])),
        **{name: pa.array([1]) for name in ("timestamp", "at", "partition", "offset")},
        **{name: pa.nulls(1, pa.int64()) for name in ("window_start", "window_end")},
        **{name: pa.array(["in"]) for name in ("reason", "topic")},
    }
    return Outcome(emitted_of([pa.table(columns)]))


@pytest.mark.parametrize("name", ["case.json", "case.yaml"])
def test_emissions_of_cases_keep_all_digits(tmp_path: Path, name: str) -> None:
    text = json.dumps(
        {
            "name": "digits",
            "pipeline": PIPELINE,
            "input": [],
            "expect": {"emissions": {"a": [{"value": {"d": "NUMBER"}}]}},
        }
    ).replace('"NUMBER"', "123456789012345678.91")
    (tmp_path / name).write_text(text)
    (case,) = load_cases(tmp_path / name)
    assert against_expectation(case, emitted(Decimal("123456789012345678.91"))) == []
    assert against_expectation(case, emitted(Decimal("123456789012345678.90"))) == [
        "key 'a', emission 1:",
        '  - {"d": 123456789012345678.91}',
        '  + {"d": 123456789012345678.90} at 1',
    ]


def test_input_of_cases_keeps_all_digits() -> None:
    pipeline = parse_case_pipeline(PIPELINE, "case.yaml")
    line = '{"key": "a", "value": {"d": [123456789012345678.91, {"x": 1.50}]}, "timestamp": 1}'
    (record,) = parse_input(line, "input", pipeline)
    assert isinstance(record, CaseRecord)
    assert record.payload == b'{"d": [123456789012345678.91, {"x": 1.50}]}'
