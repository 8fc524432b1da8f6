"""The texts of pipeline files and case files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tidegate.ksql.values import Inserted

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
