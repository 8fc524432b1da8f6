"""A stage whose columns change between batches: the kernel, with its state in files as the data plane has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate import kernel
from tidegate.expressions.arrow import arrow_type
from tidegate.kernel.keys import GREATEST_HASH, LEAST_HASH, key_hash
from tidegate.model.columns import parse_type
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.spark.shuffle import HashRange
from tidegate.spark.state import StateFiles, due_rows, stored_schema, to_stored
from tidegate.storage.compaction import FoldRule, fold
from tidegate.storage.compatibility import incompatible_changes
from tidegate.storage.datafile import RowWriter
from tidegate.storage.evolution import state_aliases
from tidegate.storage.layout import attempt_name, snapshot_name
from tidegate.storage.manifest import DataFile
from tidegate.storage.state import live_rows
from tidegate.storage.store import Store
from tidegate.yaml.load import parse_case_pipeline

Record = tuple[str, Mapping[str, Any] | None]
"""Key, and what the stage takes of the record; None: a tombstone."""
ALL = HashRange(LEAST_HASH, GREATEST_HASH)
_INPUT = pa.struct([("reason", pa.string())])


def pipeline_of(columns: str, stage: Mapping[str, Any]) -> Pipeline:
    """One stage over records with these columns, whose own key counts."""
    source = {"topics": ["in"], "format": "json", "columns": columns}
    return parse_case_pipeline({"pipeline": "p", "source": source, "stages": [{"name": "s", **stage}]}, "p")


@dataclass
class Evolving:
    """The state of a stream, batch after batch. Each batch may be of an edited pipeline."""

    root: Path
    files: list[DataFile] = field(default_factory=list)
    seq: int = 0
    offset: int = 0
    pipeline: Pipeline | None = None

    @property
    def store(self) -> Store:
        return Store(str(self.root))

    def batch(
        self, pipeline: Pipeline, records: Sequence[Record], timestamp: int = 0, drain: bool = False
    ) -> list[tuple[str, Any]]:
        """Key and value of what goes out of a batch, each key's in order. The edit has to be let through."""
        if self.pipeline is not None:
            assert incompatible_changes(self.pipeline, pipeline) == []
        self.pipeline, self.seq = pipeline, self.seq + 1
        (stage,) = pipeline.stages
        logic = kernel_stage(pipeline, stage)
        taken = pa.struct([(name, arrow_type(parse_type(str(stage.types[name])))) for name in stage.values])
        types = taken, logic.reduce.accumulator_type(taken), logic.reduce.output_type(taken)
        schema = kernel.input_schema(*types, _INPUT)
        rows = pa.RecordBatch.from_pylist(self._rows(records, timestamp), schema)
        stored = stored_schema(logic, schema)
        batch = kernel.Batch({("t", 0): timestamp}, drain=drain)
        state = StateFiles(
            self.store, tuple(self.files), stored, schema, logic.bound is not None, state_aliases(stage)
        )
        with state.open(ALL, due_rows(logic, batch)) as prior:
            decided = list(kernel.decide(logic, [rows], batch, prior))
        self._write([to_stored(table, stored, self.seq) for table in _of_kind(decided, kernel.STATE)])
        emitted = [row for table in _of_kind(decided, kernel.EMISSION) for row in table.to_pylist()]
        emitted.sort(key=lambda row: (row["key"], row["ordinal"]))
        return [(row["key"], row["value"]) for row in emitted]

    def compact(self, number: int | None = None) -> None:
        """Fold the newest `number` files into one, or all."""
        start = 0 if number is None else max(0, len(self.files) - number)
        rule = FoldRule(by_place=False, live_rows_suffice=False)
        if older := self.files[start:]:
            folder = f"s/{snapshot_name(self.seq)}"
            self.files[start:] = fold(self.store, folder, older, rule, is_whole=start == 0)

    def state(self) -> dict[str, dict[str, Any]]:
        """Key -> its row, as readers see it."""
        if self.pipeline is None or not self.files:
            return {}
        aliases = state_aliases(self.pipeline.stages[0])
        return {row["key"]: row for row in live_rows(self.store, self.files, aliases=aliases).to_pylist()}

    def _rows(self, records: Sequence[Record], timestamp: int) -> list[dict[str, Any]]:
        rows = []
        for key, value in records:
            self.offset += 1
            rows.append(
                {
                    "kind": kernel.RECORD,
                    "hash": key_hash(key),
                    "key": key,
                    "updated_seq": 0,
                    "topic": "t",
                    "partition": 0,
                    "offset": self.offset,
                    "turn": self.offset,
                    "part": 0,
                    "timestamp": timestamp,
                    "time": timestamp,
                    "passes": True,
                    "value": value,
                }
            )
        return sorted(rows, key=lambda row: (row["hash"], row["offset"]))

    def _write(self, states: Sequence[pa.RecordBatch]) -> None:
        assert self.pipeline is not None
        writer = RowWriter(self.store, f"s/{attempt_name(self.seq, 1)}/0.parquet", "state", "s")
        with writer:
            for rows in states:
                writer.write(rows)
        if writer.file is not None:
            text = state_aliases(self.pipeline.stages[0]).text
            self.files.append(replace(writer.file, aliases=text))


def _of_kind(decided: Sequence[pa.RecordBatch], kind: int) -> list[pa.RecordBatch]:
    return [rows for rows in decided if rows.num_rows and rows.column("kind")[0].as_py() == kind]
