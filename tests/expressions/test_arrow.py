"""Types of a pipeline file as Arrow's, and back."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.expressions.arrow import arrow_type, type_of
from tidegate.model.columns import SCALARS, arrow_schema, parse_columns, parse_type

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: f"decimal({precision},{scale})")
)
types = st.recursive(
    st.sampled_from(sorted(set(SCALARS.values()))) | decimals,
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        inner.map("map<string,{}>".format),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: f"struct<{','.join(f'f{place}:{part}' for place, part in enumerate(parts))}>"
        ),
    ),
    max_leaves=5,
)


@given(types)
def test_a_type_comes_back_from_arrow(text: str) -> None:
    assert type_of(arrow_type(parse_type(text))) == parse_type(text)


def test_columns_keep_their_names_and_their_order() -> None:
    columns, faults = parse_columns("b bigint, `a-b` struct<`c%d`: string>, at timestamp")
    assert faults == []
    assert arrow_schema(columns) == pa.schema(
        [
            pa.field("b", pa.int64()),
            pa.field("a-b", pa.struct([pa.field("c%d", pa.string())])),
            pa.field("at", pa.timestamp("us", "UTC")),
        ]
    )


def test_arrow_schema_gives_the_written_spark_types() -> None:
    from pyspark.sql.pandas.types import from_arrow_type

    texts = [*sorted(set(SCALARS.values())), "decimal(38,10)", "map<string,array<struct<a:int,b:date>>>"]
    for text in texts:
        assert from_arrow_type(arrow_type(parse_type(text)), prefer_timestamp_ntz=True).simpleString() == text
