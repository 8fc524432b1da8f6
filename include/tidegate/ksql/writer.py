"""The texts of pipeline files and case files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlglot import exp

import yaml
from tidegate.ksql.dialect import InsertValues
from tidegate.ksql.relations import Relation
from tidegate.ksql.types import Untranslatable, name_of

if TYPE_CHECKING:
    from tidegate.ksql.statements import Import

_WIDTH = 100


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
    body = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=_WIDTH)
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
    return yaml.safe_dump({"cases": [case]}, sort_keys=False, allow_unicode=True, width=_WIDTH)


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
    unknown = columns.keys() - {column.name for column in relation.all_columns}
    if unknown:
        raise Untranslatable(f"{relation.name} has no column {sorted(unknown)[0]}", "Correct the name.")
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
