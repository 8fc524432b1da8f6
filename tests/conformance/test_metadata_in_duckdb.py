"""Metadata and headers as columns: plain SQL of DuckDB over the whole history gives the same."""

from __future__ import annotations

import json
import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.fuzz.naive import modelled
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

PIPELINE: dict[str, Any] = {
    "pipeline": "p",
    "source": {
        "topics": ["eu", "us"],
        "format": "json",
        "columns": "n bigint",
        "metadata": {"region": "topic", "offset": "offset", "device": "key"},
        "headers": {"attempt": {"name": "x-attempt", "type": "int"}, "tenant": "string"},
        "key": ["region", "tenant"],
        "timestamp": "record",
    },
    "stages": [
        {
            "name": "out",
            "reduce": {"records": "count(*)", "tries": "sum(`attempt`)", "device": "last(`device`)"},
            "emit": {"on": "update"},
        }
    ],
}
# A tombstone counts for its key, but not for the aggregates; a record whose header is no number is unusable.
ORACLE = """
    with read as (
        select *, list_filter(headers, h -> h.name = 'x-attempt')[-1].value as attempt,
               list_filter(headers, h -> h.name = 'tenant')[-1].value as tenant
        from records
    ), usable as (
        select *, attempt::integer as tries from read
        where (attempt is null or regexp_full_match(attempt, '-?[0-9]+')) and tenant is not null
    )
    select topic, tenant, count(*), sum(tries)::bigint, arg_max(key, "offset")
    from usable where value is not null group by all
"""


def drawn(dice: random.Random) -> list[CaseRecord]:
    offsets = {"eu": 0, "us": 0}
    records = []
    for instant in range(60):
        topic = dice.choice(("eu", "us"))
        offsets[topic] += dice.randint(1, 3)
        names = dice.choices(("x-attempt", "tenant", "other"), k=dice.randint(0, 5))
        texts = {"x-attempt": ("1", "22", "-3", "many", ""), "tenant": ("a", "b"), "other": ("z",)}
        headers = tuple((name, dice.choice(texts[name])) for name in names)
        value = dice.choice((None, {"n": 1}, {"n": 2}))
        payload = None if value is None else json.dumps(value).encode()
        key = dice.choice((None, "k", "l"))
        records.append(CaseRecord(key, payload, instant, topic, 0, offsets[topic], headers))
    return records


@pytest.mark.parametrize("seed", range(20))
def test_header_and_topic_group_records_as_in_sql(seed: int) -> None:
    records = drawn(random.Random(seed))
    results = modelled(parse_case_pipeline(PIPELINE, "p.yaml"), PIPELINE, records).emissions
    assert results is not None
    table = pa.Table.from_pylist(
        [
            {
                "topic": record.topic,
                "offset": record.offset,
                "key": record.key,
                "value": record.payload,
                "headers": [{"name": name, "value": text} for name, text in record.headers],
            }
            for record in records
        ],
        pa.schema(
            [
                *(("topic", pa.string()), ("offset", pa.int64()), ("key", pa.string())),
                *(("value", pa.binary()),),
                ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
            ]
        ),
    )
    with duckdb.connect() as connection:
        connection.register("records", table)
        expected = {
            json.dumps({"region": topic, "tenant": tenant}, separators=(",", ":")): repr(
                {"records": count, "tries": tries, "device": device}
            )
            for topic, tenant, count, tries, device in connection.execute(ORACLE).fetchall()
        }
    assert {key: rows[-1][0] for key, rows in results.items()} == expected
    assert expected
