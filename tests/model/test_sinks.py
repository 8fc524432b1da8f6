"""`sinks`: into a SQL database."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import COLLECT, COUNT, SOURCE, made, refused
from tidegate.model.windows import WINDOW_COLUMNS
from tidegate.sinks.sql.layout import Target
from tidegate.sinks.sql.model import MODE_COLUMNS, SQL_COLUMNS, SqlSink


def sink(**written: Any) -> SqlSink:
    declared_sink = made(sinks=[{"kind": "sql", "table": "levels", **written}]).sinks[0]
    assert isinstance(declared_sink, SqlSink)
    return declared_sink


def test_sql_sink_appends_by_default() -> None:
    declared_sink = sink()
    assert (declared_sink.table, declared_sink.mode, declared_sink.connection) == ("levels", "append", None)
    assert (declared_sink.with_key, declared_sink.stage, declared_sink.name) == (False, None, "sql:levels")


def test_sql_sink_accepts_all_of_its_options() -> None:
    declared_sink = sink(
        table="shop.levels", connection="reports_2", mode="upsert", stage="s0", with_key=True
    )
    assert (declared_sink.name, declared_sink.mode) == ("sql:reports_2:shop.levels", "upsert")
    assert (declared_sink.with_key, declared_sink.stage) == (True, "s0")


def test_same_table_in_two_databases_makes_two_sinks() -> None:
    sinks = [{"kind": "sql", "table": "levels"}, {"kind": "sql", "table": "levels", "connection": "a"}]
    assert len(made(sinks=sinks).sinks) == 2
    ((field, message, _),) = refused(sinks=[*sinks, sinks[0]])
    assert (field, message) == ("sinks.2", "there are two sinks `sql:levels`")


@pytest.mark.parametrize(
    ("written", "field", "part"),
    [
        ({"table": "a.b.c"}, "table", "is not a table's name"),
        ({"table": "1a"}, "table", "is not a table's name"),
        ({"table": 'a"; drop table b'}, "table", "is not a table's name"),
        ({"table": None}, "table", "has to be text"),
        ({"connection": "Reports"}, "connection", "that is not a connection's name"),
        ({"connection": "postgresql://me:secret@host/db"}, "connection", "that is not a connection's name"),
        ({"mode": "merge"}, "mode", "'merge' is not known"),
        ({"stage": "s1"}, "stage", "there is no stage `s1`"),
        ({"topic": "t"}, "topic", "`topic` does not go with `kind: sql`"),
        ({"path": "p"}, "path", "`path` does not go with `kind: sql`"),
        ({"url": "x"}, "url", "unknown field `url`"),
    ],
)
def test_a_mistake_in_a_sql_sink_is_reported(written: dict[str, Any], field: str, part: str) -> None:
    ((actual_field, message, fix),) = refused(sinks=[{"kind": "sql", "table": "levels", **written}])
    assert (actual_field, part in message) == (f"sinks.0.{field}", True), (actual_field, message)
    assert fix
    assert "secret" not in message + fix


@pytest.mark.parametrize(
    ("mode", "column", "part"),
    [
        ("upsert", "Source", "the column `Source` is emitted, but the SQL table has a column of that name"),
        ("append", "deleted", "whether it is a deletion"),
        ("append", "Batch", "the batch"),
    ],
)
def test_a_column_of_the_sql_table_is_refused(mode: str, column: str, part: str) -> None:
    stage = {"select": {column: "cents"}, "emit": {"on": "update"}}
    sql = {"kind": "sql", "table": "levels", "mode": mode}
    ((field, message, fix),) = refused(stage, sinks=[sql])
    assert (field, part in message) == ("sinks.0.mode", True)
    assert f"event_{column}" in fix


PARTS: dict[str, Any] = {
    "select": {
        "name": "name",
        "tags": "tags",
        "place": "place",
        "price": "price",
        "ok": "from_json(name, 'x int')",
    }
}


def test_columns_can_have_other_types() -> None:
    types = {"name": "json", "tags": "json", "place": "text", "ok": "text"}
    declared = made(PARTS, sinks=[{"kind": "sql", "table": "t", "types": types}]).sinks[0]
    assert isinstance(declared, SqlSink)
    assert declared.types == types


def test_key_column_can_have_another_type() -> None:
    types = {"kind": "sql", "table": "t", "types": {"name": "json"}}
    source = SOURCE | {"key": ["name"]}
    stage = {"select": {"price": "price"}}
    assert refused(stage, source=source, sinks=[{**types, "with_key": True}]) == []
    ((field, message, _),) = refused(stage, source=source, sinks=[types])
    assert (field, message) == ("sinks.0.types", "the column `name` is not emitted")


@pytest.mark.parametrize(
    ("types", "part", "fix"),
    [
        ({"tag": "json"}, "the column `tag` is not emitted", "Did you mean `tags`?"),
        ({"price": "json"}, "`price` is double, which cannot have the type `json`", "out of `types`"),
        ({"name": "text"}, "`name` is string, which cannot have the type `text`", "out of `types`"),
        ({"name": "jsonb"}, "jsonb", "json"),
    ],
)
def test_type_that_a_column_cannot_have_is_refused(types: dict[str, str], part: str, fix: str) -> None:
    ((field, message, actual_fix),) = refused(PARTS, sinks=[{"kind": "sql", "table": "t", "types": types}])
    assert field.startswith("sinks.0.types")
    assert part in message
    assert fix in actual_fix


@pytest.mark.parametrize("mode", MODE_COLUMNS)
@pytest.mark.parametrize("windowed", [True, False])
def test_names_are_those_of_the_table(mode: str, windowed: bool) -> None:
    own = set(Target("t", mode, with_key=False, windowed=windowed).own_columns)
    assert own | set(WINDOW_COLUMNS) == {*SQL_COLUMNS, *MODE_COLUMNS[mode]}


def test_where_the_databases_url_stands_is_reported() -> None:
    ((_, _, fix),) = refused(sinks=[{"kind": "sql", "table": "t", "connection": "sqlite:///x"}])
    assert "TIDEGATE_SQL_REPORTS" in fix


@pytest.mark.parametrize("mode", ["upsert", "history", "insert_ignore"])
def test_events_are_appended_and_never_replaced(mode: str) -> None:
    upsert = {"kind": "sql", "table": "events", "mode": mode}
    ((field, message, fix),) = refused(COLLECT, sinks=[upsert])
    would = "leave out" if mode == "insert_ignore" else "overwrite"
    assert (field, f"would {would} events" in message) == ("sinks.0.mode", True)
    assert "Use `mode: append`: what `reduce: collect` gathers" in fix
    assert refused(COLLECT, sinks=[{**upsert, "mode": "append"}]) == []


UPSERT = {"kind": "sql", "table": "levels", "mode": "upsert"}
WINDOWED = {**COUNT, "window": {"tumbling": "1h"}}


def test_an_upsert_that_drops_the_window_is_refused() -> None:
    ((field, message, fix),) = refused(WINDOWED, {"emit": {"on": "change"}}, sinks=[UPSERT])
    assert (field, "overwrite each other" in message) == ("sinks.0.mode", True)
    assert "`mode: append`" in fix
    three = (WINDOWED, {"emit": {"on": "change"}}, {"emit": {"on": "update"}})
    assert [field for field, _, _ in refused(*three, sinks=[UPSERT])] == ["sinks.0.mode"]


@pytest.mark.parametrize("more", [{"key": ["id"]}, {"window": {"tumbling": "1h"}}])
def test_an_upsert_with_key_or_window_is_taken(more: dict[str, Any]) -> None:
    assert made(WINDOWED, {"emit": {"on": "change"}, **more}, sinks=[UPSERT])


def test_an_append_may_drop_the_window() -> None:
    assert made(WINDOWED, {"emit": {"on": "change"}}, sinks=[{**UPSERT, "mode": "append"}])


def test_only_the_sinks_own_stage_must_not_collect() -> None:
    upsert = {"kind": "sql", "table": "t", "mode": "upsert"}
    assert refused(COLLECT, COUNT, sinks=[upsert]) == []
    assert refused(COLLECT, COUNT, sinks=[{**upsert, "stage": "s0"}])[0][0] == "sinks.0.mode"


def test_sink_stage_defaults_to_the_last() -> None:
    sinks = [{"kind": "table"}, {"kind": "sql", "table": "t", "stage": "s0"}]
    pipeline = made(COUNT, COUNT, sinks=sinks)
    assert [pipeline.stage_of(declared_sink).name for declared_sink in pipeline.sinks] == ["s1", "s0"]


def test_http_sinks_have_names_that_differ() -> None:
    written = [{}, {"path": "a"}, {"connection": "a"}, {"connection": "a", "path": "a/b"}]
    sinks = made(sinks=[{"kind": "http", **fields} for fields in written]).sinks
    assert [sink.name for sink in sinks] == ["http:", "http:/a", "http:a", "http:a/a/b"]


@pytest.mark.parametrize("path", ["/a", "a/../b", "a//b", "a?token=x", "https://a", "", "a" * 301])
def test_path_of_an_endpoint_is_relative(path: str) -> None:
    ((field, message, fix),) = refused(sinks=[{"kind": "http", "path": path}])
    assert (field, "is not a path that can be used" in message) == ("sinks.0.path", True)
    assert "TIDEGATE_HTTP" in fix


def test_requests_have_a_size() -> None:
    written = {"kind": "http", "batch_records": 0, "max_bytes": 10}
    fields = [field for field, _, _ in refused(sinks=[written])]
    assert fields == ["sinks.0.batch_records", "sinks.0.max_bytes"]


@pytest.mark.parametrize(
    ("written", "place", "message"),
    [
        ({"cloudevents": {}}, "sinks.0.cloudevents", "`format: json` has no attributes of events"),
        ({"format": "cloudevents", "cloudevents": {"type": "a b"}}, "sinks.0.cloudevents.type", "not a type"),
        (
            {"format": "cloudevents", "cloudevents": {"source": "a b"}},
            "sinks.0.cloudevents.source",
            "not a URI",
        ),
        ({"format": "cloudevents", "cloudevents": {"mode": "x"}}, "sinks.0.cloudevents.mode", "'x'"),
    ],
)
@pytest.mark.parametrize("kind", [{"kind": "http"}, {"kind": "kafka", "topic": "out"}], ids=str)
def test_attributes_of_events_are_checked(
    kind: dict[str, Any], written: dict[str, Any], place: str, message: str
) -> None:
    ((field, what, _),) = refused(sinks=[kind | written])
    assert (field, message in what) == (place, True), what


@pytest.mark.parametrize("name", ["ce_type", "CE_x", "Content-Type"])
def test_headers_of_an_event_are_not_replaced(name: str) -> None:
    sink = {"kind": "kafka", "topic": "out", "headers": {name: "name"}}
    assert refused(sinks=[sink]) == []
    ((field, message, _),) = refused(sinks=[{**sink, "format": "cloudevents"}])
    assert (field, "is a header of the event itself" in message) == ("sinks.0.headers", True)


def test_attributes_of_a_source_are_single_values() -> None:
    columns = "id bigint, ce_tags array<string>"
    ((field, message, _),) = refused(source={"format": "cloudevents", "columns": columns})
    assert (field, "an attribute is a single value" in message) == ("source.columns", True)


def test_iceberg_sinks_have_names_that_differ() -> None:
    written = [{"table": "a.b"}, {"table": "a.b", "connection": "c"}, {"table": "a.b.c"}]
    sinks = made(sinks=[{"kind": "iceberg", **fields} for fields in written]).sinks
    assert [sink.name for sink in sinks] == ["iceberg:a.b", "iceberg:c:a.b", "iceberg:a.b.c"]


@pytest.mark.parametrize("table", ["a", "a.", ".a", "a.b-c", "a/b", "1.a", f"a.{'b' * 255}"])
def test_iceberg_table_has_a_namespace(table: str) -> None:
    ((field, message, fix),) = refused(sinks=[{"kind": "iceberg", "table": table}])
    assert (field, "is not a table of an Iceberg catalog" in message) == ("sinks.0.table", True)
    assert "namespace.table" in fix


def test_clickhouse_sinks_have_names_that_differ() -> None:
    written = [{"table": "b"}, {"table": "a.b", "connection": "c"}]
    sinks = made(sinks=[{"kind": "clickhouse", **fields} for fields in written]).sinks
    assert [sink.name for sink in sinks] == ["clickhouse:b", "clickhouse:c:a.b"]


@pytest.mark.parametrize("table", ["a.", ".a", "a.b.c", "a-b", "a/b", "1", "", f"a.{'b' * 199}"])
def test_clickhouse_table_has_a_plain_name(table: str) -> None:
    ((field, message, _),) = refused(sinks=[{"kind": "clickhouse", "table": table}])
    assert (field, "is not a table of ClickHouse" in message) == ("sinks.0.table", True)


def test_iceberg_columns_have_one_meaning() -> None:
    stage = COUNT | {"reduce": {"seq": "count(*)"}}
    ((field, message, _),) = refused(stage, sinks=[{"kind": "iceberg", "table": "a.b"}])
    assert field == "sinks.0.mode"
    assert "the column `seq` is emitted" in message
