"""Translate the statements of a file, in order, to the texts of pipeline files and case files: each query is
a pipeline, and the rest makes remarks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlglot import Token, exp
from sqlglot.errors import ParseError, TokenError

from tidegate.errors import PipelineInvalid
from tidegate.ksql import dialect
from tidegate.ksql.dialect import InsertValues
from tidegate.ksql.joins import StreamJoin
from tidegate.ksql.queries import QueryPlan, QueryResult
from tidegate.ksql.relations import (
    Relation,
    WithOptions,
    altered,
    check_readable,
    declared,
    sink_of,
    with_time,
)
from tidegate.ksql.translated import time_value, with_type
from tidegate.ksql.types import STRING, Remark, Untranslatable, name_of
from tidegate.yaml.load import parse_pipeline
from tidegate.yaml.tree import write


def import_texts(imported: Import, folder: Path) -> dict[Path, str]:
    """Return the text of each file: the pipelines, and a case for each that reads inserted records."""
    texts = {}
    for pipeline in imported.pipelines:
        texts[folder / f"{pipeline.name}.yaml"] = pipeline.text
        records = [record for record in imported.inserted if record.relation.topic in pipeline.topics]
        if records:
            path = folder / "cases" / pipeline.name / "inserted.yaml"
            texts[path] = case_text(pipeline.name, f"../../{pipeline.name}.yaml", records)
    return texts


def pipeline_name(relation: str) -> str:
    """Return the name of the pipeline that makes a relation.

    Example: `ORDERS.EU` gives `orders_eu`.
    """
    name = re.sub(r"[^a-z0-9_]", "_", relation.lower())
    return name if name[:1].isalpha() else f"p{name}"


def pipeline_text(document: dict[str, Any], origin: str) -> str:
    """Return a pipeline as YAML, with the place of its statement."""
    body = write(document)
    return f"# Imported from {origin} by `tidegate import ksql`.\n{body}"


def case_text(name: str, path: str, records: Sequence[Inserted]) -> str:
    """Return a case whose input is what INSERT INTO … VALUES has. ksqlDB alone knows what it would send, so
    the case expects only that each record can be used.
    """
    case = {
        "name": f"the inserted records of {name}",
        "pipeline": path,
        "input": list(case_records(records)),
        "expect": {"quarantined": 0},
    }
    return write({"cases": [case]})


def case_records(records: Iterable[Inserted]) -> Iterable[dict[str, Any]]:
    """Yield the records as a case has them."""
    for number, record in enumerate(records):
        relation = record.relation
        key = {column.name: record.columns.get(column.name) for column in relation.key}
        value = {column.name: record.columns.get(column.name) for column in relation.columns}
        written: dict[str, Any] = {"topic": relation.topic}
        if any(part is not None for part in key.values()):
            parts = list(key.values())
            written["key"] = str(parts[0]) if relation.key_format == "KAFKA" else json.dumps(key)
        written["value"] = value if relation.value_format == "JSON" else _row(list(value.values()))
        # a later record has a later time
        written["timestamp"] = number if record.timestamp is None else record.timestamp
        yield written


def _row(values: Sequence[Any]) -> str:
    return ",".join(map(_field, values))


def _field(value: Any) -> str:
    if value is None:
        return ""
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\r\n]|^$', text) else text


@dataclass(frozen=True)
class Inserted:
    """A record of a relation: its key's columns and its value's; `timestamp` is in epoch ms, or None."""

    relation: Relation
    columns: dict[str, Any]
    timestamp: int | None


def inserted(tree: InsertValues, relation: Relation, line: int) -> Inserted:
    """Read a record. Raises Untranslatable for values that are no literals."""
    named = tree.args.get("columns")
    names = [name_of(column) for column in named or ()] or [column.name for column in relation.all_columns]
    values = [_value(node) for node in tree.expressions]
    if len(names) != len(values):
        raise Untranslatable("it has not as many values as columns", "Write a value for each column.")
    columns = dict(zip(names, values, strict=True))
    time = columns.pop("ROWTIME", None)
    types = {column.name: column.type for column in relation.all_columns}
    unknown = columns.keys() - types.keys()
    if unknown:
        raise Untranslatable(f"{relation.name} has no column {sorted(unknown)[0]}", "Correct the name.")
    columns = {name: time_value(value, types[name]) for name, value in columns.items()}
    return Inserted(relation, columns, time if isinstance(time, int) else None)


def _value(node: exp.Expr) -> Any:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        return -_value(node.this)
    if isinstance(node, exp.Literal):
        text = str(node.this)
        return text if node.is_string else int(text) if text.isdigit() else float(text)
    if isinstance(node, exp.Array):
        return [_value(item) for item in node.expressions]
    if isinstance(node, exp.Anonymous) and str(node.this).upper() in ("MAP", "STRUCT"):
        return {
            str(part.this.this) if str(node.this).upper() == "MAP" else name_of(part.this): _value(
                part.expression
            )
            for part in node.expressions
        }
    raise Untranslatable(f"`{node.sql()}` is no literal", "Write the value itself.")


_SHOWN = 60
_HARMLESS = ("SHOW", "LIST", "DESCRIBE", "PRINT", "EXPLAIN")
_INSTEAD = {
    "CREATE TYPE": "Write the type in place of its name.",
    "CREATE CONNECTOR": "Keep the connector in Kafka Connect.",
    "SELECT": "Query the state: `tidegate state`.",
}


@dataclass(frozen=True)
class ImportedPipeline:
    """A pipeline of a query.

    Args:
        topics: The topics that it reads.
        topic: The topic that it writes.
    """

    name: str
    document: dict[str, Any]
    text: str
    topics: tuple[str, ...]
    topic: str
    line: int


@dataclass
class Import:
    """The pipelines and remarks of a file.

    Args:
        file: Its name, for remarks.
        earliest: Whether queries read topics from their beginning (`auto.offset.reset`); None: it is not set.
        names: The names of all streams and tables, also of those that are not imported.
    """

    file: str
    earliest: bool | None = None
    names: set[str] = field(default_factory=set)
    relations: dict[str, Relation] = field(default_factory=dict)
    pipelines: list[ImportedPipeline] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    inserted: list[Inserted] = field(default_factory=list)

    def read(self, text: str) -> Import:
        """Translate all statements of a text, and return itself."""
        try:
            statements = list(dialect.statements_of(text))
        except TokenError as error:
            self.remarks.append(Remark(self.file, 1, "", str(error).splitlines()[0], "Correct the text."))
            return self
        for statement in statements:
            self._translate(statement, text)
        return self

    def _translate(self, statement: list[Token], text: str) -> None:
        first = statement[0]
        shown = " ".join(text[first.start : statement[-1].end + 1].split())
        place = (self.file, first.line, shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…")
        try:
            for why in self._statement(dialect.parse(statement, text), first.line):
                self.remarks.append(Remark(*place, why, "Compare both results.", imported=True))
        except ParseError as error:
            why = str(error.errors[0]["description"] if error.errors else error)
            if why.startswith("Required keyword"):  # sqlglot names its own classes
                why = "a part of it is missing"
            self.remarks.append(Remark(*place, f"it cannot be read: {why}", "Correct the statement."))
        except Untranslatable as error:
            self.remarks.append(Remark(*place, error.why, error.instead))
        except PipelineInvalid as error:
            problem = error.problems[0]
            why = f"its pipeline is refused: {problem.message}"
            self.remarks.append(Remark(*place, why, problem.fix))

    def _statement(self, tree: exp.Expr, line: int) -> Iterable[str]:
        """Translate a statement; return why its result may differ."""
        if isinstance(tree, dialect.SetProperty):
            value = tree.args.get("expression")
            self._set(str(tree.this.this), None if value is None else str(value.this))
        elif isinstance(tree, (dialect.CreateSource, dialect.CreateAs)):
            return self._create(tree, line)
        elif isinstance(tree, dialect.InsertValues):
            self.inserted.append(inserted(tree, self._relation(tree.this), line))
        elif isinstance(tree, dialect.InsertAs):
            return self._insert_as(tree, line)
        elif isinstance(tree, dialect.Alter):
            relation = self.relations.pop(name_of(tree.this), None) or self._relation(tree.this)
            self.relations[relation.name] = altered(relation, tree)
        elif isinstance(tree, dialect.Drop):
            self._drop(name_of(tree.this))
        elif not str(tree.this).startswith(_HARMLESS):
            word = str(tree.this).split(" ")[0]
            instead = _INSTEAD.get(str(tree.this), _INSTEAD.get(word, "Leave it out."))
            raise Untranslatable(f"{tree.this} makes no stream and no table", instead)
        return ()

    def _set(self, name: str, value: str | None) -> None:
        if name != "auto.offset.reset" or value not in ("earliest", "latest", None):
            raise Untranslatable(f"the property {name} is not translated", "Leave it out.")
        self.earliest = None if value is None else value == "earliest"

    def _create(self, tree: dialect.CreateSource | dialect.CreateAs, line: int) -> Iterable[str]:
        name = name_of(tree.this)
        if name in self.names and tree.args["if_missing"]:
            return ()
        if name in self.names and not tree.args["replaces"]:
            raise Untranslatable(f"there is a {name} already, so ksqlDB refuses it", "Rename one of them.")
        self.names.add(name)
        self.relations.pop(name, None)
        if isinstance(tree, dialect.CreateAs):
            return self._create_as(tree, line)
        self.relations[name] = declared(tree)
        return ()

    def _drop(self, name: str) -> None:
        """Forget what no query makes or reads: a script often drops what an earlier run of it made."""
        relation = self.relations.get(name)
        if relation is not None and (
            relation.is_derived or any(relation.topic in pipeline.topics for pipeline in self.pipelines)
        ):
            raise Untranslatable(f"queries of this file make or read {name}", "Leave out what is dropped.")
        self.names.discard(name)
        self.relations.pop(name, None)

    def _relation(self, name: exp.Expr) -> Relation:
        relation = self.relations.get(name_of(name))
        if relation is None:
            raise Untranslatable(
                f"no statement that is imported makes {name_of(name)}", "Look for its own remark, or add it."
            )
        return relation

    def _create_as(self, tree: dialect.CreateAs, line: int) -> Iterable[str]:
        name, query = name_of(tree.this), tree.args["query"]
        options = WithOptions.read(tree.args.get("options"))
        relations = [self._relation(node.this) for node in self._inputs(query)]
        result, kind = self._result(query, relations), str(tree.args["kind"])
        made = with_time(_made(name, kind, options, relations[0], result), options)
        if made.timestamp is not None:
            raise Untranslatable("messages have the time of their record", "Leave TIMESTAMP out.")
        check_readable(replace(made, window=""), options)
        self._check_kind(kind, query, relations[0])
        self._write(pipeline_name(name), result, made, relations, line)
        self.relations[made.name] = made
        return result.differs

    def _check_kind(self, kind: str, query: dialect.Query, relation: Relation) -> None:
        gives = "TABLE" if query.args.get("group") or relation.kind == "TABLE" else "STREAM"
        if kind != gives:
            raise Untranslatable(f"the query gives a {gives}, which ksqlDB refuses", f"Write CREATE {gives}.")

    def _insert_as(self, tree: dialect.InsertAs, line: int) -> Iterable[str]:
        target, query = self._relation(tree.this), tree.args["query"]
        relations = [self._relation(node.this) for node in self._inputs(query)]
        result = self._result(query, relations)
        if query.args.get("group"):
            raise Untranslatable("INSERT INTO takes no table", "Write CREATE TABLE.")
        names = [
            [(column.name, column.type) for column in columns] for columns in (result.key, result.columns)
        ]
        expected = [[(column.name, column.type) for column in part] for part in (target.key, target.columns)]
        if names != expected:
            raise Untranslatable(f"its columns are not those of {target.name}", "Name and cast them alike.")
        number = sum(1 for pipeline in self.pipelines if pipeline.topic == target.topic) + 1
        self._write(f"{pipeline_name(target.name)}_{number}", result, target, relations, line)
        self.relations[target.name] = replace(target, is_derived=True)
        return result.differs

    def _inputs(self, query: dialect.Query) -> list[exp.Expr]:
        return [query.this, *(join.this for join in query.args.get("joins") or ())]

    def _result(self, query: dialect.Query, relations: Sequence[Relation]) -> QueryResult:
        if len(relations) > 1:
            return StreamJoin(query, relations, bool(self.earliest)).result()
        relation = relations[0]
        # Without the property, ksqlDB reads streams from their latest record on, tables from their beginning.
        earliest = relation.kind == "TABLE" if self.earliest is None else self.earliest
        return QueryPlan(query, relation, earliest).result()

    def _write(
        self, name: str, result: QueryResult, made: Relation, relations: Sequence[Relation], line: int
    ) -> None:
        named = "sources" if len(relations) > 1 else "source"
        if made.value_format != "JSON":
            _write_rows(result, made.value_format)
        document = {
            "pipeline": name,
            "generation": 1,
            "schedule": "*/5 * * * *",
            named: result.source,
            "stages": result.stages,
            "sinks": [sink_of(replace(made, window=""))],
        }
        if name in [pipeline.name for pipeline in self.pipelines]:
            raise Untranslatable(
                f"another statement makes a pipeline {name}", "Leave one of them out, or rename it."
            )
        text = pipeline_text(document, f"{self.file}:{line}")
        parse_pipeline(text, f"{name}.yaml")  # raises PipelineInvalid
        topics = tuple(relation.topic for relation in relations)
        self.pipelines.append(ImportedPipeline(name, document, text, topics, made.topic, line))


def _write_rows(result: QueryResult, value_format: str) -> None:
    """Change the last stage, so that its values have types and the texts that ksqlDB writes: in DELIMITED it
    writes an empty text like a null, other than in the first column.
    """
    last = result.stages[-1]
    part = "select" if "select" in last else "reduce"
    for place, column in enumerate(result.columns):
        sql = last[part][column.name]
        if place and column.type == STRING and value_format == "DELIMITED":
            sql = f"nullif({sql}, '')"
        last[part][column.name] = with_type(sql, column.type) if part == "select" else sql


def _made(name: str, kind: str, options: WithOptions, left: Relation, result: QueryResult) -> Relation:
    """Return what a query makes: formats that it does not name are those of what it reads."""
    value_format = (options.get("VALUE_FORMAT", "FORMAT") or left.value_format).upper()
    delimiter = options.get("VALUE_DELIMITER") or (
        left.delimiter if value_format == left.value_format else None
    )
    if delimiter is not None:
        raise Untranslatable("sinks write DELIMITED with commas", "Leave VALUE_DELIMITER out.")
    return Relation(
        name,
        kind,
        options.get("KAFKA_TOPIC") or name,
        result.key,
        result.columns,
        (options.get("KEY_FORMAT", "FORMAT") or left.key_format).upper(),
        value_format,
        window=result.window,
        is_derived=True,
    )
