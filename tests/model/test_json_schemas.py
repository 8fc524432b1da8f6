"""`format: json` with a schema file or a registry."""

from __future__ import annotations

from pathlib import Path

from tests.model.files import problems
from tests.model.test_schemas import HERE, columns, parsed, text
from tidegate.formats.json.schema import pinned_json_schema
from tidegate.model.compiled import compile_pipeline, read_compiled

JSON = "format: json, schema: schemas/stock.json"


def test_the_columns_are_the_properties() -> None:
    assert columns(JSON) == [
        ("storeId", "string"),
        ("id", "bigint"),
        ("quantity", "bigint"),
        ("at", "timestamp"),
        ("tags", "array<string>"),
        ("place", "struct<city:string>"),
    ]


def test_columns_may_be_some_of_them() -> None:
    assert columns(f'{JSON}, columns: "id int"') == [("id", "int")]


def test_registry_subject_is_the_title_of_the_schema() -> None:
    source = parsed(f"{JSON}, registry: {{strategy: record_name}}").sources["source"]
    assert source.subjects == ("Stock",)
    assert parsed('format: json, registry: {}, columns: "id int"').sources["source"].subjects == (
        "stock-value",
        "more-value",
    )


def test_plan_keeps_the_schema_without_its_file(tmp_path: Path) -> None:
    file = tmp_path / "stock.json"
    file.write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    pipeline_text = text("format: json, schema: stock.json")
    from tidegate.yaml.load import parse_pipeline

    planned = compile_pipeline(parse_pipeline(pipeline_text, str(tmp_path / "p.yaml")))
    file.unlink()
    loaded = read_compiled(planned, pipeline_text, "batch 1")
    assert loaded.sources["source"].schemas.reader is not None
    assert pinned_json_schema(loaded.sources["source"].schemas.reader).validator().is_valid({"id": 1})


def test_what_is_wrong_is_reported() -> None:
    assert [message for _, _, message, _ in problems(text("format: json, schema: stock.avsc"), HERE)] == [
        "'stock.avsc' is not a schema file of json"
    ]
    assert [message for _, _, message, _ in problems(text("format: json, registry: {}"), HERE)] == [
        "a registry alone does not determine the columns: it may have other versions tomorrow"
    ]
    assert [
        message for _, _, message, _ in problems(text("format: csv, columns: a int, schema: s.json"), HERE)
    ] == ["`format: csv` has no schema file"]
    assert [message for _, _, message, _ in problems(text("format: json, schema: none.json"), HERE)] == [
        "there is no file 'none.json'"
    ]
