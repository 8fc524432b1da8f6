"""Read what the other job sent: all committed records of its topic, decoded as those of a source are.

The user describes the topic with the words of a `source`, so formats, registries, keys and their messages are
those of pipeline files. The columns are those that the stage emits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import yaml
from tidegate.app.root import App
from tidegate.batch.schemas import with_writers
from tidegate.errors import PipelineInvalid, SettingsInvalid
from tidegate.formats import FrameDecoder, Records
from tidegate.kafka.log import TopicView
from tidegate.kernel.rows import Position
from tidegate.ledger import OffsetRange
from tidegate.model.pipeline import Pipeline
from tidegate.model.source import Source
from tidegate.model.stage import Stage
from tidegate.shadow.emission import SentEmission, Window, last_hop
from tidegate.yaml.load import parse_tree
from tidegate.yaml.tree import read

_POSITION = "tidegate_position"
_HEADER = "header:"
_POSITION_TYPES = ((), (pa.string(),), (pa.int32(), pa.int64()), (pa.string(), pa.int32(), pa.int64()))
"""The types of so many columns that have the source position."""
_BYTES = 8
"""The bytes of a window's bound in the key of Kafka Streams."""


@dataclass(frozen=True)
class OtherTopic:
    """The description of the other job's topic.

    Args:
        source: fields of `source` in a pipeline file, beside `topics`: `format`, `key`, `key_format` …
        equal: `equal` of `on: change`, as in a pipeline file.
        ignore: columns that are not compared.
        position: `header:NAME`, or one to three columns: see `TopicReader`; None: the header
            `tidegate-source`, if all records have it.
        windowed_keys: whether keys end with the bytes of their window.
    """

    topic: str
    source: Mapping[str, Any] = field(default_factory=dict)
    equal: str = "exact"
    ignore: tuple[str, ...] = ()
    position: str | None = None
    windowed_keys: bool = False

    @property
    def position_columns(self) -> tuple[str, ...]:
        """The columns that have the source position; empty if a header has it.

        Raises SettingsInvalid for more than three.
        """
        if self.position is None or self.position.startswith(_HEADER):
            return ()
        names = tuple(name.strip() for name in self.position.split(","))
        if len(names) > len(_POSITION_TYPES) - 1:
            raise SettingsInvalid(
                f"--position {self.position} names {len(names)} columns",
                "Name one with `topic/partition/offset`, or partition,offset, or topic,partition,offset.",
            )
        return names

    def pipeline(self, value: pa.StructType, key: pa.StructType) -> Pipeline:
        """Return a pipeline of one stage that reads the topic and compares as asked.

        Args:
            value: the columns that the stage emits.
            key: the columns of its key.

        Raises SettingsInvalid if an option does not fit these columns.
        """
        equal = self._equivalence()
        # Equivalences that are words compare hashes, which takes one pass; the others compare two values.
        state = "hash" if isinstance(equal, str) else "value"
        emit: dict[str, Any] = {"on": "change", "equal": equal, "state": state}
        if self.ignore:
            emit["ignore"] = list(self.ignore)
        select = {name: f"`{name}`" for name in value.names}
        stage = {"name": "compared", "select": select, "reduce": "latest", "emit": emit}
        document = {"pipeline": "shadow", "source": self._source(value, key), "stages": [stage]}
        text = json.dumps(document)
        try:
            # Schema files are found from the folder in which the command runs.
            return parse_tree(read(text, str(Path("options.json").absolute())), text, in_case=True)
        except PipelineInvalid as error:
            problems = [f"{problem.field}: {problem.message}. {problem.fix}" for problem in error.problems]
            raise SettingsInvalid(
                f"The records of {self.topic} cannot be read like this: {' '.join(problems)}",
                "Correct the options of the command: they are fields of `source` and `emit`.",
            ) from error

    def _equivalence(self) -> Any:
        try:
            return yaml.safe_load(self.equal)
        except yaml.YAMLError as error:
            raise SettingsInvalid(
                f"--equal {self.equal} cannot be read", "Write for example --equal 'within: {price: 0.5}'."
            ) from error

    def _source(self, value: pa.StructType, key: pa.StructType) -> dict[str, Any]:
        """Return the field `source` of the pipeline that reads the topic."""
        source: dict[str, Any] = {"topics": [self.topic], "format": "json", **self.source}
        columns = {name: value.field(name).type for name in value.names}
        keys = {key.field(number).name: key.field(number).type for number in range(key.num_fields)}
        if source.get("key_format", "text") != "text":
            source |= {"key_columns": _ddl(keys), "key": list(keys)}
            # A column cannot be declared twice, in the key and in the value.
            columns = {name: type_ for name, type_ in columns.items() if name not in keys}
        elif "key" in source:
            source["key"] = self._key(source["key"], list(keys))
            types = zip(source["key"], keys.values(), strict=True)
            columns = {**dict(types), **columns}
        names = self.position_columns
        columns |= dict(zip(names, _POSITION_TYPES[len(names)], strict=True))
        source.setdefault("columns", _ddl(columns))
        if self.position is not None and not names:
            header = {"name": self.position.removeprefix(_HEADER), "type": "string"}
            source["headers"] = {_POSITION: header}
        return source

    def _key(self, names: Sequence[str], own: Sequence[str]) -> list[str]:
        """Return the columns of the key in the pipeline's order. A single column may have another name."""
        if len(own) == len(names) == 1:
            return list(names)
        if sorted(names) != sorted(own):
            raise SettingsInvalid(
                f"--key {','.join(names)} is not the key of the pipeline, {','.join(own)}",
                "Name the same columns; --alias gives one of them its name in the other job's values.",
            )
        return list(own)


def _ddl(columns: Mapping[str, pa.DataType]) -> str:
    from tidegate.spark.source import spark_types  # late: only this needs Spark

    fields = spark_types(pa.schema(list(columns.items())))
    return ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in fields)


@dataclass(frozen=True)
class SentRecords:
    """The records that the other job sent.

    Args:
        emissions: its emissions; those of a key are in the order of its partitions.
        unreadable: position -> why a record cannot be read.
        all_placed: whether all emissions have a source position.
        begins_late: whether Kafka has removed the first records of the topic.
        compacted: whether Kafka may remove records for newer ones of the same key.
    """

    emissions: Sequence[SentEmission]
    unreadable: Mapping[Position, str]
    all_placed: bool
    begins_late: bool
    compacted: bool


@dataclass(frozen=True)
class SentTopic:
    """The topic of the other job, as it is when the comparison begins.

    Args:
        view: its ends: later records are not compared.
        compacted: whether Kafka may remove records for newer ones of the same key.
    """

    other: OtherTopic
    view: TopicView
    compacted: bool

    @classmethod
    def opened(cls, app: App, other: OtherTopic) -> SentTopic:
        """Return the topic. Raises TopicMissing, SettingsInvalid, BrokerUnavailable."""
        with app.log(other.source.get("connection")) as log:
            return cls(other, log.view(other.topic), log.requires_keys(other.topic))

    @property
    def offsets(self) -> int:
        """The number of offsets that are compared."""
        return sum(end - self.view.starts[partition] for partition, end in self.view.stable_ends.items())


def sent_records(
    app: App,
    topic: SentTopic,
    types: tuple[pa.StructType, pa.StructType],
    stage: Stage,
    topics: Collection[str],
) -> tuple[SentRecords, Pipeline]:
    """Return the records of a topic, and the pipeline that `OtherTopic.pipeline` makes.

    Args:
        types: the columns of values, and of keys.
        stage: the stage of tidegate that is compared.
        topics: the topics that it reads.

    Raises SettingsInvalid, SchemaUnknown, RegistryUnavailable, OffsetsLost, BrokerUnavailable.
    """
    view = topic.view
    pipeline = with_writers(app, topic.other.pipeline(*types), None, reads=True)
    source = pipeline.sources["source"]
    reader = TopicReader(topic.other, source, stage, list(types[0].names), topics)
    for partition, end in sorted(view.stable_ends.items()):
        range_ = OffsetRange(view.topic, partition, view.starts[partition], end)
        reader.read(app, range_)
    emissions = reader.emissions
    placed = bool(emissions) and all(emission.source is not None for emission in emissions)
    begins_late = any(view.starts.values()) and not topic.compacted
    return SentRecords(emissions, reader.unreadable, placed, begins_late, topic.compacted), pipeline


class TopicReader:
    """Reads ranges of the topic to emissions, in this process.

    A header or one column has the source position as `topic/partition/offset`, or a chain of them; two
    columns have partition and offset, and three also the topic.

    Args:
        source: the topic as a source.
        stage: the stage of tidegate that is compared.
        names: the columns that it emits.
        topics: the topics that it reads.
    """

    def __init__(
        self, other: OtherTopic, source: Source, stage: Stage, names: Sequence[str], topics: Collection[str]
    ) -> None:
        from tidegate.spark.steps import record_layout  # late: only this needs Spark

        self.emissions: list[SentEmission] = []
        self.unreadable: dict[Position, str] = {}
        if other.windowed_keys and stage.window is None:
            raise SettingsInvalid(
                f"The stage {stage.name} has no window, so no key has one",
                "Leave --windowed-keys out, or name the stage with the window: --stage.",
            )
        if len(other.position_columns) == 2 and len(topics) > 1:
            raise SettingsInvalid(
                f"--position {other.position} names no topic, and the pipeline reads {', '.join(topics)}",
                "Name three columns: topic,partition,offset.",
            )
        self._other, self._source, self._names, self._topics = other, source, names, topics
        self._merges = stage.window is not None and stage.window.merges
        self._decoder = FrameDecoder(record_layout(source), None, False)

    def read(self, app: App, range_: OffsetRange) -> None:
        """Add the records of a range."""
        from tidegate.spark.source import KafkaSource

        kafka = KafkaSource(app.settings.kafka(self._source.connection), (range_,))
        for slice_ in kafka.slices(timed=True, cores=1):
            for records in slice_.blocks():
                self.add(records)

    def add(self, records: Records) -> None:
        """Add records of one partition, in their order."""
        windows: Sequence[Window | None] = [None] * len(records.keys)
        if self._other.windowed_keys:
            split = [self._split(key) for key in records.keys]
            records = replace(records, keys=[key for key, _ in split])
            windows = [window for _, window in split]
        rows = [row for batch in self._decoder.decode(records) for row in batch.to_pylist()]
        for row, window in zip(rows, windows, strict=True):
            sent = (row["__topic"], row["__partition"], row["__offset"])
            if row["__reason"] is not None:
                self.unreadable[sent] = row["__reason"]
            else:
                self.emissions.append(self._emission(row, window, sent))

    def _emission(self, row: Mapping[str, Any], window: Window | None, sent: Position) -> SentEmission:
        value = None if row["__tombstone"] else {name: row[name] for name in self._names}
        timestamp = row["__timestamp"]
        return SentEmission(row["__key"], window, value, timestamp, timestamp, self._position(row), sent)

    def _position(self, row: Mapping[str, Any]) -> Position | None:
        """Return the source position that a record names; None if it names none."""
        names = self._other.position_columns
        if len(names) <= 1:
            text = "__chain" if self._other.position is None else names[0] if names else _POSITION
            position = last_hop(row[text])
        else:
            values = [row[name] for name in names]
            topic = values[0] if len(names) == 3 else next(iter(self._topics))
            position = None if None in values else (topic, values[-2], values[-1])
        # The chain of a record that another job repeats may end elsewhere.
        return position if position is not None and position[0] in self._topics else None

    def _split(self, key: bytes | None) -> tuple[bytes | None, Window | None]:
        """Return a windowed key without the bounds at its end, and its window.

        Kafka Streams writes the start of a time window; of a session the end, and then the start.
        """
        length = 2 * _BYTES if self._merges else _BYTES
        if key is None or len(key) < length:
            return key, None
        start = int.from_bytes(key[-_BYTES:], "big")
        end = int.from_bytes(key[-length:-_BYTES], "big") if self._merges else None
        return key[:-length], (start, end)
