"""Run test cases in the form of ksqlDB's own functional tests: statements, inputs and expected outputs.

ksqlDB's cases are under the Confluent Community License, so this repository has none of them. The folder of a
checkout, `ksqldb-functional-tests/src/test/resources/query-validation-tests`, is the argument::

    python -m tests.ksql.functional FOLDER [file or name …]
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.formats.registry import formats
from tidegate.ksql.relations import Relation
from tidegate.ksql.statements import Import, ImportedPipeline
from tidegate.model.kernel_stages import value_schema
from tidegate.model.pipeline import Pipeline
from tidegate.spark.case_run import CaseRun
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_pipeline
from tidegate.yaml.tree import exact_text

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


@dataclass(frozen=True)
class FunctionalCase:
    """A case: statements, inputs and outputs, each with topic, key, value, and maybe timestamp and window."""

    file: str
    name: str
    statements: tuple[str, ...]
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]


def cases_of(path: Path) -> Iterator[FunctionalCase]:
    """Yield the cases of a file that expect outputs, once for each of their formats."""
    text = _COMMENT.sub("", path.read_text())
    for test in json.loads(text, strict=False, parse_float=Decimal)["tests"]:
        if "expectedException" in test or "outputs" not in test or test.get("properties"):
            continue
        for format_ in dict.fromkeys(test.get("format", [""])):
            statements = tuple(line.replace("{FORMAT}", format_) for line in test["statements"])
            name = f"{test['name']} {format_}".strip()
            yield FunctionalCase(
                path.stem, name, statements, tuple(test.get("inputs", ())), tuple(test["outputs"])
            )


@dataclass(frozen=True)
class Shown:
    """An output: its value as text, its window, and its timestamp, which a case need not name."""

    value: str
    window: list[int] | None
    timestamp: int | None

    def agrees(self, actual: Shown) -> bool:
        """Return whether an actual output is the expected one."""
        same_time = self.timestamp in (None, actual.timestamp)
        return self.value == actual.value and same_time and self.window == actual.window


@dataclass(frozen=True)
class Message:
    """A message of a topic: what it says, and its bytes."""

    key: bytes | None
    payload: bytes | None
    timestamp: int


class FunctionalRun:
    """One case: its statements imported, and run pipeline after pipeline."""

    def __init__(self, spark: Any, case: FunctionalCase) -> None:
        self._spark = spark
        self._case = case
        self.imported = Import(f"{case.file}.sql").read(
            "SET 'auto.offset.reset'='earliest';\n" + "\n".join(case.statements)
        )
        self.quarantined = 0

    @property
    def has_doubts(self) -> bool:
        """Whether a record is in quarantine: no statement tells whether it has a value of another type."""
        return self.quarantined > 0

    def differences(self) -> list[str]:
        """Return what differs from the expected outputs."""
        order = [(record["topic"], self._message(record)) for record in self._case.inputs]
        lines: list[str] = []
        for pipeline in self.imported.pipelines:
            outputs = [output for output in self._case.outputs if output["topic"] == pipeline.topic]
            feeding = [(topic, message) for topic, message in order if topic in pipeline.topics]
            emitted, sent, error = self._emitted(pipeline, feeding)
            if error is not None:
                return [f"{pipeline.name}: {type(error).__name__}: {error}"]
            order += [(pipeline.topic, message) for message in sent]
            writers = sum(other.topic == pipeline.topic for other in self.imported.pipelines)
            if writers == 1 and (outputs or not self._case.outputs):
                lines += self._compared(pipeline, outputs, emitted)
        return lines

    def _emitted(
        self, imported: ImportedPipeline, feeding: Sequence[tuple[str, Message]]
    ) -> tuple[list[Any], list[Message], Exception | None]:
        pipeline = parse_pipeline(imported.text, f"{imported.name}.yaml")
        offsets: Counter[str] = Counter()
        records = []
        for topic, message in feeding:
            records.append(
                CaseRecord(message.key, message.payload, message.timestamp, topic, 0, offsets[topic])
            )
            offsets[topic] += 1
        if not records:
            return [], [], None
        run = CaseRun(self._spark, pipeline, records)
        (outcome,) = run.run_all([list(range(1, len(records)))])
        if outcome.error is not None:
            return [], [], outcome.error
        self.quarantined += outcome.counts["quarantined"]
        sent = [self._sent(pipeline, emission) for emission in outcome.emissions]
        return outcome.emissions, sent, None

    def _sent(self, pipeline: Pipeline, emission: Any) -> Message:
        (sink,) = pipeline.sinks
        relation = next(r for r in self.imported.relations.values() if r.topic == sink.topic)
        payload = None
        if emission.value is not None:
            payload = _payload(pipeline, emission.value)
        return Message(_key_bytes(relation, _key(relation, emission.key)), payload, emission.timestamp)

    def _compared(
        self, imported: ImportedPipeline, outputs: Sequence[dict[str, Any]], emitted: Sequence[Any]
    ) -> list[str]:
        pipeline = parse_pipeline(imported.text, f"{imported.name}.yaml")
        relation = next(r for r in self.imported.relations.values() if r.topic == imported.topic)
        expected: dict[str, list[Shown]] = {}
        for output in outputs:
            window = output.get("window")
            bounds = None if window is None else [window["start"], window.get("end")]
            shown = Shown(_shown(relation, output["value"]), bounds, output.get("timestamp"))
            expected.setdefault(_text(output.get("key")), []).append(shown)
        actual: dict[str, list[Shown]] = {}
        for emission in emitted:
            value = emission.value
            if value is not None and relation.value_format == "DELIMITED":
                value = _payload(pipeline, value).decode()
            if value is not None and relation.value_format == "KAFKA":
                (value,) = value.values()
            bounds = None if emission.window is None else list(emission.window)
            shown = Shown(_shown(relation, value), bounds, emission.timestamp)
            actual.setdefault(_text(_key(relation, emission.key)), []).append(shown)
        if expected.keys() == actual.keys() and all(
            len(actual[key]) == len(shown) and all(map(Shown.agrees, shown, actual[key]))
            for key, shown in expected.items()
        ):
            return []
        return [f"{imported.topic}: expected {expected}", f"{imported.topic}: got      {actual}"]

    def _message(self, record: dict[str, Any]) -> Message:
        relation = next((r for r in self.imported.relations.values() if r.topic == record["topic"]), None)
        value, timestamp = record["value"], record.get("timestamp", 0)
        if relation is None:
            return Message(None, None, timestamp)
        payload = None
        if value is not None:
            if relation.value_format == "KAFKA":
                payload = _bytes(relation.columns[0].type.ddl, value)
            else:
                payload = (
                    value.encode()
                    if relation.value_format == "DELIMITED" and isinstance(value, str)
                    else exact_text(value).encode()
                )
        return Message(_key_bytes(relation, record.get("key")), payload, timestamp)


def _payload(pipeline: Pipeline, value: dict[str, Any]) -> bytes:
    (sink,) = pipeline.sinks
    if sink.format == "json":
        return exact_text(value).encode()
    schema = value_schema(pipeline, pipeline.stages[-1])
    row = pa.array([_pythonic(value, schema)], pa.struct(list(schema)))
    write = formats()[sink.format].write
    assert write is not None
    (text,) = write(row).to_pylist()
    return text if isinstance(text, bytes) else text.encode()


def _pythonic(value: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    return {
        field.name: float(value[field.name])
        if pa.types.is_floating(field.type) and value[field.name] is not None
        else value[field.name]
        for field in schema
    }


def _key(relation: Relation, text: str | None) -> Any:
    if text is None:
        return None
    if relation.key_format == "JSON" and len(relation.key) > 1:
        return json.loads(text, parse_float=Decimal)
    return text if relation.key[0].type.kind == "STRING" else int(text)


def _key_bytes(relation: Relation, key: Any) -> bytes | None:
    if key is None:
        return None
    if not relation.key:
        return exact_text(key).encode()
    if relation.key_format == "JSON":
        return exact_text(key).encode()
    return _bytes(relation.key[0].type.ddl, key)


def _bytes(type_: str, value: Any) -> bytes:
    column = pa.field(
        "KEY", {"int": pa.int32(), "bigint": pa.int64(), "double": pa.float64()}.get(type_, pa.string())
    )
    key_bytes = formats()["kafka"].key_bytes
    assert key_bytes is not None
    return key_bytes(column, str(value))


def _text(value: Any) -> str:
    return exact_text(_plain(value))


def _shown(relation: Relation, value: Any) -> str:
    if isinstance(value, dict):  # the cases write some decimals as text; ksqlDB itself writes numbers
        columns = {column.name for column in relation.columns}  # fields have any case, as in ksqlDB
        named = {name if name in columns else name.upper(): item for name, item in value.items()}
        decimals = {column.name for column in relation.columns if column.type.kind == "DECIMAL"}
        value = {
            name: Decimal(item) if name in decimals and isinstance(item, str) else item
            for name, item in named.items()
        }
    return str(value) if relation.value_format == "DELIMITED" else _text(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in sorted(value.items())}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, (Decimal, float)):
        # Java 17 writes some doubles with more digits than are needed
        return float(value) if float(value) != int(float(value)) else int(float(value))
    return value


def main(folder: Path, only: Sequence[str]) -> None:
    """Print each case that differs, and the counts."""
    from tidegate.spark.session import open_session

    spark, counts, remarks = None, Counter[str](), Counter[str]()
    for path in sorted(folder.glob("*.json")):
        for case in cases_of(path):
            if only and not any(word in f"{case.file}: {case.name}" for word in only):
                continue
            run = FunctionalRun(None, case)
            counts["cases"] += 1
            if run.imported.remarks:
                counts["with a remark"] += 1
                remarks[run.imported.remarks[0].why] += 1
                if only:
                    print("REMARK", case.file, case.name, *run.imported.remarks, sep="\n   ")
                continue
            if spark is None:
                spark = open_session("local[1]")
            run._spark = spark
            try:
                differences = run.differences()
            except Exception as error:
                differences = [f"{type(error).__name__}: {error}"]
            counts["equal" if not differences else "different"] += 1
            if differences:
                counts["different, with a record in quarantine"] += run.has_doubts
                print(
                    "DIFFERS",
                    f"{case.file}: {case.name}",
                    *case.statements,
                    *differences,
                    sep="\n   ",
                    flush=True,
                )
    print(counts)
    for why, number in remarks.most_common(70):
        print(number, why)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
