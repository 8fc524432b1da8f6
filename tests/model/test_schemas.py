"""Sources with schemas: their files, their columns, the subjects of a registry, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.model.files import problems
from tidegate.model.columns import arrow_schema
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import parse_pipeline

HERE = str(Path(__file__))
COLUMNS = [("storeId", "string"), ("id", "bigint"), ("quantity", "int")]
AVRO = "format: avro, schema: schemas/stock.avsc"
PROTO = "format: protobuf, schema: schemas/stock.proto, message: shop.Stock"


def text(source: str) -> str:
    return (
        f"pipeline: p\nsource: {{topics: [stock, more], {source}}}\n"
        "stages: [{name: p, emit: {on: change}}]\nsinks: [{kind: table}]"
    )


def parsed(source: str) -> Pipeline:
    return parse_pipeline(text(source), HERE)


def columns(source: str) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in parsed(source).sources["source"].columns]


def test_the_columns_are_those_of_the_schemas_file() -> None:
    assert columns(AVRO) == COLUMNS
    assert columns(PROTO) == [*COLUMNS, ("place", "struct<city:string>")]
    assert parsed(AVRO).sources["source"].schemas.reader is not None


def test_columns_may_be_some_of_them_and_wider() -> None:
    assert columns(f'{AVRO}, columns: "quantity bigint, id bigint"') == [
        ("quantity", "bigint"),
        ("id", "bigint"),
    ]
    assert columns(f'{PROTO}, columns: "quantity bigint"') == [("quantity", "bigint")]


def test_a_compiled_descriptor_is_a_schema_file(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="a.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Stock").field.add(name="id", number=1, type=3, label=1)
    (tmp_path / "stock.desc").write_bytes(files.SerializeToString())
    source = "format: protobuf, schema: stock.desc"  # with one message, which need not be named
    pipeline = parse_pipeline(text(source), str(tmp_path / "p.yaml"))
    assert (pipeline.sources["source"].message, pipeline.sources["source"].columns[0].type) == (
        "shop.Stock",
        "bigint",
    )


@pytest.mark.parametrize(
    ("registry", "subjects"),
    [
        ("{}", ("stock-value", "more-value")),
        ("{strategy: record_name}", ("shop.Stock",)),
        ("{strategy: topic_record_name}", ("stock-shop.Stock", "more-shop.Stock")),
        ("{subjects: [a, b]}", ("a", "b")),
    ],
)
@pytest.mark.parametrize("source", [AVRO, PROTO])
def test_subjects_go_by_the_producers_strategy(source: str, registry: str, subjects: tuple[str, ...]) -> None:
    assert parsed(f"{source}, registry: {registry}").sources["source"].subjects == subjects


def test_a_registry_is_a_connection_of_the_pipeline() -> None:
    named = parsed(f"{AVRO}, registry: {{connection: shop}}")
    assert [connection.variable for connection in named.connections] == [
        "TIDEGATE_KAFKA",
        "TIDEGATE_REGISTRY_SHOP",
    ]


@pytest.mark.parametrize(
    ("source", "field", "message"),
    [
        ("format: avro", "registry", "`format: avro` needs a schema"),
        ("format: avro, registry: {}", "columns", "a registry alone does not determine the columns"),
        (
            "format: avro, schema: /etc/passwd.avsc",
            "schema",
            "'/etc/passwd.avsc' is not a schema file of avro",
        ),
        ("format: avro, schema: a/../../x.avsc", "schema", "'a/../../x.avsc' is not a schema file of avro"),
        ("format: avro, schema: schemas/stock.proto", "schema", "'schemas/stock.proto' is not a schema file"),
        ("format: avro, schema: none.avsc", "schema", "there is no file 'none.avsc'"),
        ('format: csv, columns: "a int", schema: a.avsc', "schema", "`format: csv` has no schema file"),
        ('format: csv, columns: "a int", registry: {}', "registry", "`format: csv` has no schemas"),
        (f"{AVRO}, message: Stock", "message", "`format: avro` has no messages"),
        (
            PROTO.rpartition(",")[0],
            "message",
            "the file has several messages, and `message` does not name one",
        ),
        (f"{PROTO}s", "message", "there is no message `shop.Stocks` in the file"),
        (f'{AVRO}, columns: "id int, other int"', "columns", "`$.other` is not in the schema"),
        (f'{AVRO}, columns: "id string"', "columns", "`$.id` is `long`, which cannot be a column of type"),
        (
            'format: avro, columns: "id int", registry: {strategy: record_name}',
            "registry",
            "`strategy: record_name` needs the record's name",
        ),
        (f"{AVRO}, registry: {{subjects: ['a b']}}", "registry.subjects.0", "'a b' is not a subject's name"),
        (f"{AVRO}, registry: {{url: x}}", "registry.url", "unknown field `url`"),
    ],
)
def test_impossible_schema_combination_is_refused_with_fix(source: str, field: str, message: str) -> None:
    ((line, actual_field, actual_message, fix),) = problems(text(source), HERE)
    assert (line, actual_field) == (2, f"source.{field}")
    assert actual_message.startswith(message)
    assert fix


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        ('["int", "string"]', '`a` is the union ["int","string"], which has no one type'),
        ('"null"', "`a` is null and nothing else"),
        ('"nothing"', "the type `nothing` is not defined"),
    ],
)
def test_what_cannot_be_a_column_is_refused(tmp_path: Path, type_: str, why: str) -> None:
    schema = f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {type_}}}]}}'
    (tmp_path / "r.avsc").write_text(schema)
    ((*_, message, _),) = problems(text("format: avro, schema: r.avsc"), str(tmp_path / "p.yaml"))
    assert why in message


def test_every_type_of_avro_has_its_column(tmp_path: Path) -> None:
    logical = [
        ("bytes", "decimal", "decimal(9,2)"),
        ("string", "uuid", "string"),
        ("int", "date", "date"),
        ("int", "time-millis", "int"),
        ("long", "time-micros", "bigint"),
        ("long", "timestamp-millis", "timestamp"),
        ("long", "timestamp-micros", "timestamp"),
        ("long", "local-timestamp-micros", "timestamp_ntz"),
        ("long", "timestamp-nanos", "bigint"),
    ]
    fields = [
        {"name": f"f{at}", "type": {"type": on, "logicalType": name, "precision": 9, "scale": 2}}
        for at, (on, name, _) in enumerate(logical)
    ]
    (tmp_path / "r.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    source = parse_pipeline(text("format: avro, schema: r.avsc"), str(tmp_path / "p.yaml")).sources["source"]
    assert [column.type for column in source.columns] == [type_ for *_, type_ in logical]
    assert arrow_schema(source.columns).names == [column.name for column in source.columns]
