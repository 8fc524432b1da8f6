"""Values and keys in the bytes of Kafka's serializers, which are those of `confluent_kafka.serialization`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka.serialization import DoubleSerializer, IntegerSerializer, StringSerializer
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.formats.kafka import KafkaDecoder
from tidegate.formats.registry import formats

INTS = st.integers(-(2**31), 2**31 - 1)


def column(type_: pa.DataType) -> pa.Schema:
    return pa.schema([("id", type_)])


def written(values: list[object], type_: pa.DataType) -> list[bytes | None]:
    write = formats()["kafka"].write
    assert write is not None
    column = pa.array(values, type_)
    bytes_: list[bytes | None] = write(pa.StructArray.from_arrays([column], ["id"])).to_pylist()
    return bytes_


@examples(50)
@given(st.lists(INTS), st.lists(st.floats(allow_nan=False)), st.lists(st.text(st.characters(codec="utf-8"))))
def test_bytes_are_those_of_confluents_serializers(
    ints: list[int], floats: list[float], texts: list[str]
) -> None:
    assert written(list(ints), pa.int32()) == [IntegerSerializer()(value) for value in ints]
    assert written(list(floats), pa.float64()) == [DoubleSerializer()(value) for value in floats]
    assert written(list(texts), pa.string()) == [StringSerializer()(value) for value in texts]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int32(), [7, None, -1]),
        (pa.int64(), [2**40, None, -(2**63)]),
        (pa.float64(), [0.5, None]),
        (pa.string(), ["", "é"]),
    ],
)
def test_written_values_are_read_again(type_: pa.DataType, values: list[object]) -> None:
    decoded = KafkaDecoder(column(type_)).decode(written(values, type_))
    assert decoded.reasons == {}
    assert decoded.columns.field("id").to_pylist() == values


def test_value_of_another_length_is_unusable() -> None:
    decoded = KafkaDecoder(column(pa.int64())).decode([bytes(4), bytes(8), None])
    assert decoded.reasons == {0: "malformed: Expected 8 bytes, got 4 - at `id`"}
    assert decoded.columns.to_pylist() == [None, {"id": 0}, None]


def test_text_that_is_not_utf8_is_unusable() -> None:
    decoded = KafkaDecoder(column(pa.string())).decode([b"\xff", b"a"])
    assert decoded.reasons == {0: "malformed: it is not UTF-8 - at `id`"}
