"""A statement without an equivalent is a remark with its line, and never another pipeline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import cli
from tidegate.ksql.statements import Import, case_records

STREAMS = (
    "CREATE STREAM s (k BIGINT KEY, a INT, t STRING, xs ARRAY<INT>) "
    "WITH (kafka_topic='s', value_format='JSON');"
    "CREATE STREAM r (k BIGINT KEY, b INT) WITH (kafka_topic='r', value_format='JSON');\n"
    "CREATE TABLE tab (k BIGINT PRIMARY KEY, c INT) WITH (kafka_topic='tab', value_format='JSON');\n"
    "CREATE STREAM keyless (a INT) WITH (kafka_topic='keyless', value_format='JSON');"
    "CREATE STREAM inferred (a INT) WITH (kafka_topic='i', key_format='AVRO', value_format='JSON');\n"
)
REMARKS = [
    ("CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM s GROUP BY k HAVING COUNT(*) > 1", "HAVING deletes"),
    ("CREATE TABLE o AS SELECT k, c FROM tab WHERE c > 1", "WHERE on a table"),
    ("CREATE TABLE o AS SELECT c, COUNT(*) AS n FROM tab GROUP BY c", "loses its last row"),
    ("CREATE STREAM o AS SELECT s.k, a, c FROM s JOIN tab ON s.k = tab.k", "a join with a table"),
    ("CREATE STREAM o AS SELECT s.k, a, b FROM s JOIN r ON s.k = r.k", "needs WITHIN"),
    ("CREATE STREAM o AS SELECT s.k, a, b FROM s LEFT JOIN r WITHIN 1 DAY ON s.k = r.k", "GRACE PERIOD"),
    ("CREATE STREAM o AS SELECT s.k, a, b FROM s FULL JOIN r WITHIN 1 DAY ON s.k = r.k", "a key of its own"),
    ("CREATE STREAM o AS SELECT a FROM keyless PARTITION BY a, NULL", "a part of the key is NULL"),
    ("CREATE STREAM o AS SELECT a FROM inferred", "its key has the columns of a schema"),
    ("CREATE STREAM o AS SELECT a FROM s", "is not selected, which ksqlDB refuses"),
    ("CREATE STREAM o AS SELECT k, UUID() AS id FROM s", "another value each time"),
    ("CREATE STREAM o AS SELECT k, FROB(a) AS id FROM s", "the function FROB"),
    ("CREATE STREAM o AS SELECT k, nothing FROM s", "there is no column `NOTHING`"),
    ("CREATE STREAM o AS SELECT k, a + t AS x FROM s", "does not compute with numbers"),
    ("CREATE STREAM o AS SELECT k, a = t AS x FROM s", "compares INTEGER with STRING"),
    ("CREATE STREAM o AS SELECT k, CAST(t AS DATE) AS x FROM s", "a cast of STRING to DATE"),
    ("CREATE STREAM o AS SELECT k, REGEXP_EXTRACT('(a)|b', t, 1) AS x FROM s", "not each match of (a)|b has"),
    ("CREATE STREAM o AS SELECT k, REGEXP_EXTRACT('a', t, 1) AS x FROM s", "not each match of a has"),
    ("CREATE STREAM o AS SELECT k, REGEXP_EXTRACT('a{', t) AS x FROM s", "'a{' may be no regular"),
    ("CREATE STREAM o AS SELECT k, REGEXP_REPLACE(t, '(', '') AS x FROM s", "'(' may be no regular"),
    ("CREATE STREAM o AS SELECT k, REGEXP_REPLACE(t, 'a', '$1') AS x FROM s", "has not the groups of '$1'"),
    ("CREATE STREAM o AS SELECT k, REGEXP_REPLACE(t, 'a', '$') AS x FROM s", "the replacement '$' differs"),
    ("CREATE STREAM o AS SELECT k, SUBSTRING(t, 2, 2147483647) AS x FROM s", "a length of 2147483647"),
    ("CREATE STREAM o AS SELECT k, REPLACE(t, '', '-') AS x FROM s", "REPLACE of"),
    ("CREATE STREAM o AS SELECT k, ROUND(SQRT(a), -1) AS x FROM s", "ROUND to -1 digits"),
    ("CREATE STREAM o AS SELECT k, DATETOSTRING(a, 'HH') AS x FROM s", "the pattern 'HH' of times"),
    ("CREATE STREAM o AS SELECT k, TIMESTAMPTOSTRING(a, 'HHH') AS x FROM s", "the pattern 'HHH' of times"),
    ("CREATE STREAM o AS SELECT k, ROWTIME > '2020-13' AS x FROM s", "'2020-13' is no time"),
    ("CREATE STREAM o AS SELECT k, a * 1E-310 AS x FROM s", "no usual DOUBLE"),
    ("CREATE STREAM o AS SELECT k, 9223372036854775808 AS x FROM s", "too large for BIGINT"),
    ("CREATE STREAM o AS SELECT k, xs < xs AS x FROM s", "compares what has no order"),
    ("CREATE STREAM o AS SELECT k, STRUCT(x := a, X := t) AS x FROM s", "a STRUCT has a field twice"),
    ("CREATE STREAM o AS SELECT k, a AS x, t AS x FROM s", "two columns are `X`"),
    ("CREATE STREAM o AS SELECT k, ROWTIME FROM s", "ROWTIME is a name of ksqlDB itself"),
    ("CREATE STREAM o AS SELECT * FROM s WINDOW TUMBLING (SIZE 1 HOUR)", "WINDOW needs GROUP BY"),
    ("CREATE TABLE o AS SELECT k, EXPLODE(ARRAY[c]) AS x FROM tab", "have no equivalent"),
    ("CREATE STREAM o AS SELECT k, TRANSFORM(xs, x => NULL) AS x FROM s", "has no type"),
    ("CREATE STREAM o AS SELECT k, REDUCE(xs, 0, (s, x) => s + x) AS x FROM s", "REDUCE with these lambdas"),
    ("CREATE STREAM o AS SELECT k, TIMESTAMPTOSTRING(a, 'yy', 'Here') AS x FROM s", "the time zone 'Here'"),
    ("CREATE STREAM o AS SELECT k, DATEADD(WEEKS, 1, FROM_DAYS(a)) AS x FROM s", "`WEEKS` is no unit"),
    ("CREATE STREAM o AS SELECT k, UNIX_DATE() AS x FROM s", "the time of the machine"),
    ("CREATE STREAM o AS SELECT k, t LIKE 'a\\Eb' AS x FROM s", "a pattern of LIKE"),
    ("CREATE STREAM o WITH (value_format='AVRO') AS SELECT k, a FROM s", "values in AVRO"),
    ("CREATE STREAM o WITH (key_format='JSON') AS SELECT k, a FROM s", "keys in JSON"),
    ("CREATE STREAM o WITH (frob='x') AS SELECT k, a FROM s", "the option FROB"),
    ("CREATE STREAM o AS SELECT k, a FROM s LIMIT 3", "LIMIT ends"),
    ("CREATE STREAM o AS SELECT k, a FROM gone", "no statement that is imported makes GONE"),
    ("CREATE TABLE o AS SELECT k, a FROM s", "the query gives a STREAM"),
    ("CREATE TABLE o AS SELECT k, HISTOGRAM(t) AS h FROM s GROUP BY k", "the aggregate HISTOGRAM"),
    ("CREATE STREAM o AS SELECT k, EXPLODE(xs) AS x, EXPLODE(xs) AS y FROM s", "several EXPLODE"),
    ("CREATE STREAM o AS SELEKT k FROM s", "it cannot be read"),
    ("CREATE TYPE address AS STRUCT<street STRING>", "CREATE TYPE makes no stream"),
    ("CREATE STREAM s (k BIGINT KEY, z INT) WITH (kafka_topic='z', value_format='JSON')", "there is a S"),
    ("SELECT * FROM s EMIT CHANGES", "makes no stream"),
    ("SET 'cache.max.bytes.buffering'='0'", "the property cache.max.bytes.buffering"),
]


@pytest.mark.parametrize(("statement", "why"), REMARKS, ids=[why for _, why in REMARKS])
def test_statement_without_an_equivalent_is_remarked(statement: str, why: str) -> None:
    imported = Import("shop.sql").read(f"{STREAMS}{statement};\nCREATE STREAM p AS SELECT k, a FROM s;")
    (remark,) = imported.remarks
    assert why in remark.why
    assert str(remark).startswith("shop.sql:4: ")
    assert remark.instead.endswith(".")
    assert [pipeline.name for pipeline in imported.pipelines] == ["p"]  # the others go on


def test_estimated_count_is_imported_with_a_remark() -> None:
    imported = Import("f.sql").read(
        f"{STREAMS}CREATE TABLE o AS SELECT k, COUNT_DISTINCT(a) AS n FROM s GROUP BY k;"
    )
    (remark,) = imported.remarks
    assert remark.imported
    assert len(imported.pipelines) == 1


def test_final_results_are_imported_with_a_remark() -> None:
    window = "WINDOW TUMBLING (SIZE 1 HOUR)"
    query = f"CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM s {window} GROUP BY k EMIT FINAL;"
    (remark,) = Import("f.sql").read(STREAMS + query).remarks
    assert (remark.imported, "older than its retention" in remark.why) == (True, True)


def test_computed_key_is_imported_with_a_remark() -> None:
    for query, remarks in (
        ("ABS(a) AS p, t FROM s PARTITION BY ABS(a)", 1),
        ("a, t FROM s PARTITION BY a", 0),
    ):
        imported = Import("f.sql").read(f"{STREAMS}CREATE STREAM o AS SELECT {query};")
        assert [remark.imported for remark in imported.remarks] == [True] * remarks
        assert len(imported.pipelines) == 1


@pytest.mark.parametrize(("window", "remarks"), [("SESSION (1 HOUR)", 1), ("TUMBLING (SIZE 1 HOUR)", 0)])
def test_first_value_of_sessions_is_remarked(window: str, remarks: int) -> None:
    query = f"CREATE TABLE o AS SELECT k, EARLIEST_BY_OFFSET(a) AS x FROM s WINDOW {window} GROUP BY k;"
    imported = Import("f.sql").read(STREAMS + query)
    assert [remark.imported for remark in imported.remarks] == [True] * remarks
    assert len(imported.pipelines) == 1


def test_queries_read_from_the_latest_record_on() -> None:
    latest = Import("f.sql").read(f"{STREAMS}CREATE STREAM o AS SELECT k, a FROM s;")
    earliest = Import("f.sql").read(
        f"SET 'auto.offset.reset'='earliest';{STREAMS}CREATE STREAM o AS SELECT k, a FROM s;"
    )
    (one_start,) = [pipeline.document["source"].get("start") for pipeline in latest.pipelines]
    (other_start,) = [pipeline.document["source"].get("start") for pipeline in earliest.pipelines]
    assert (one_start, other_start) == ("latest", None)


@pytest.mark.parametrize(
    ("within", "grace"),
    [
        ("1 HOUR", 22 * 3_600_000),
        ("(2 HOURS, 1 HOUR)", 20 * 3_600_000),
        ("1 DAY", 0),
        ("1 DAY GRACE PERIOD 5 SECONDS", 5_000),
    ],
)
def test_join_has_the_grace_of_kafka_streams(within: str, grace: int) -> None:
    query = f"CREATE STREAM o AS SELECT s.k, a, b FROM s JOIN r WITHIN {within} ON s.k = r.k;"
    (pipeline,) = Import("f.sql").read(STREAMS + query).pipelines
    (join,) = [stage["join"] for stage in pipeline.document["stages"] if "join" in stage]
    assert join["grace"] == f"{grace}ms"


def test_second_statement_of_a_name_is_remarked() -> None:
    query = "CREATE OR REPLACE STREAM o AS SELECT k, a FROM s;"
    (remark,) = Import("f.sql").read(f"{STREAMS}{query}\n{query}").remarks
    assert remark.why == "another statement makes a pipeline o"
    assert Import("f.sql").read(f"DROP STREAM IF EXISTS s;\n{STREAMS}{query}").remarks == []


def test_dropped_query_is_remarked() -> None:
    query = "CREATE STREAM o AS SELECT k, a FROM s;"
    imported = Import("f.sql").read(f"{STREAMS}{query}\nDROP STREAM o;\nDROP STREAM s;\nDROP STREAM r;")
    assert [remark.why for remark in imported.remarks] == [
        "queries of this file make or read O",
        "queries of this file make or read S",
    ]
    assert "R" not in imported.relations


def test_if_not_exists_keeps_the_first_statement() -> None:
    later = (
        "CREATE STREAM IF NOT EXISTS s (k BIGINT KEY, z INT) WITH (kafka_topic='z', value_format='JSON');"
        "CREATE STREAM o AS SELECT k, a FROM s;CREATE STREAM IF NOT EXISTS o AS SELECT k, t FROM s;"
    )
    imported = Import("f.sql").read(STREAMS + later)
    assert imported.remarks == []
    (pipeline,) = imported.pipelines
    assert pipeline.topics == ("s",)
    assert list(pipeline.document["stages"][0]["select"]) == ["A"]


def test_added_column_is_selected_by_later_queries() -> None:
    text = (
        "ALTER STREAM s ADD COLUMN z INT, ADD w DOUBLE;CREATE STREAM o AS SELECT * FROM s;"
        "ALTER STREAM o ADD COLUMN y INT;CREATE STREAM p AS SELECT * FROM o;"
    )
    imported = Import("f.sql").read(STREAMS + text)
    assert [remark.why for remark in imported.remarks] == [
        "O has the columns of its query",
        "no statement that is imported makes O",
    ]
    (pipeline,) = imported.pipelines
    assert list(pipeline.document["stages"][0]["select"]) == ["A", "T", "XS", "Z", "W"]


def test_unset_property_has_its_default() -> None:
    text = f"SET 'auto.offset.reset'='earliest';UNSET 'auto.offset.reset';{STREAMS}"
    imported = Import("f.sql").read(f"{text}CREATE STREAM o AS SELECT k, a FROM s;")
    assert imported.remarks == []
    assert imported.pipelines[0].document["source"]["start"] == "latest"


def test_inserted_times_are_numbers() -> None:
    text = (
        "CREATE STREAM s (k INT KEY, ts TIMESTAMP, d DATE, t TIME) "
        "WITH (kafka_topic='s', value_format='JSON');"
        "INSERT INTO s VALUES (1, '1970-01-02T00:00:01', '1970-01-03', '00:01:00');"
        "INSERT INTO s VALUES (2, 86400000, NULL, '00:00:00.5');"
        "INSERT INTO s VALUES (3, 'noon', NULL, NULL);"
    )
    imported = Import("f.sql").read(text)
    assert [record["value"] for record in case_records(imported.inserted)] == [
        {"TS": 86_401_000, "D": 2, "T": 60_000},
        {"TS": 86_400_000, "D": None, "T": 500},
    ]
    assert [remark.why for remark in imported.remarks] == ["'noon' is no time"]


def test_command_overwrites_no_file(tmp_path: Path) -> None:
    file = tmp_path / "f.sql"
    file.write_text(f"{STREAMS}CREATE STREAM o AS SELECT k, a FROM s;")
    arguments = ["import", "ksql", str(file), "--to", str(tmp_path / "pipelines")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    again = CliRunner().invoke(cli, arguments)
    assert again.exit_code != 0
    assert "already exists" in str(again.exception) + again.output


@pytest.mark.parametrize(("setting", "start"), [("", None), ("SET 'auto.offset.reset'='latest';", "latest")])
def test_tables_are_read_from_their_beginning(setting: str, start: str | None) -> None:
    imported = Import("f.sql").read(f"{setting}{STREAMS}CREATE TABLE o AS SELECT k, c FROM tab;")
    assert imported.pipelines[0].document["source"].get("start") == start


def test_insert_with_another_delimiter_is_remarked() -> None:
    imported = Import("f.sql").read(
        f"{STREAMS}CREATE STREAM piped (k BIGINT KEY, a INT) WITH (kafka_topic='p', "
        "value_format='DELIMITED', value_delimiter='|');INSERT INTO piped SELECT k, a FROM s;"
    )
    assert [remark.why for remark in imported.remarks] == ["sinks write DELIMITED with commas"]
    assert imported.pipelines == []


def test_declared_topic_is_coerced_after_an_insert() -> None:
    text = f"{STREAMS}INSERT INTO r SELECT k, a AS b FROM s;CREATE STREAM p AS SELECT k, b FROM r;"
    imported = Import("f.sql").read(text)
    assert imported.pipelines[-1].document["source"]["coerce"] is True


WHOLE = """
CREATE OR REPLACE TABLE o WITH (kafka_topic = 'o', partitions = 3) AS SELECT k, COUNT(*) AS n FROM s
    WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 5 MINUTES, GRACE PERIOD 0 SECONDS) WHERE a > 1 AND t LIKE 'x'
    GROUP BY k HAVING COUNT(*) > 1 EMIT FINAL LIMIT 5;
CREATE STREAM o AS SELECT s.k AS k, CASE WHEN a = 1 THEN CAST(b AS STRING) ELSE t END AS x, xs[1] AS y
    FROM s LEFT JOIN r WITHIN (1 HOUR, 2 DAYS) GRACE PERIOD 1 DAY ON s.k = r.k PARTITION BY s.k EMIT CHANGES;
CREATE STREAM z (k BIGINT KEY, m MAP<STRING, ARRAY<STRUCT<d DECIMAL(4, 2)>>>) WITH
    (kafka_topic = 'z', value_format = 'JSON', timestamp = 'k', timestamp_format = 'yyyy');
INSERT INTO s (ROWTIME, k, a, xs) VALUES (1, 2, -3, ARRAY[4, 5]);
ALTER STREAM s ADD COLUMN c INT;
SET 'auto.offset.reset' = 'earliest';
"""


@pytest.mark.parametrize("whole", WHOLE.strip().split(";\n"))
def test_statement_that_is_cut_short_is_remarked(whole: str) -> None:
    words = re.findall(r"\\w+|'[^']*'|\\S", whole)
    for end in range(1, len(words)):
        imported = Import("f.sql").read(f"{STREAMS}{' '.join(words[:end])};")
        assert all(remark.line for remark in imported.remarks)


def test_join_has_the_time_of_its_key() -> None:
    imported = Import("f.sql").read(
        f"{STREAMS}CREATE STREAM timed (k BIGINT KEY, at BIGINT) WITH (kafka_topic='timed', "
        "value_format='JSON', timestamp='at');CREATE STREAM o AS SELECT s.k, a, timed.k AS other FROM s "
        "JOIN timed WITHIN 1 DAY ON s.k = timed.at;"
    )
    (side, other) = imported.pipelines[0].document["sources"].values()
    assert (side.get("timestamp"), other["timestamp"]) == (None, other["key"][0])
