"""Turn a pipeline file's source into the layout by which `formats` decodes records."""

from __future__ import annotations

from tidegate.formats import CsvDialect, RecordLayout, SequenceParts
from tidegate.spec import Source
from tidegate.spec.arrow import arrow_schema


def record_layout(source: Source) -> RecordLayout:
    """Return the layout of the source's records. It travels to workers in place of `source`."""
    return RecordLayout(
        source.format,
        arrow_schema(source.columns),
        source.key or (),
        None if source.timestamp == "record" else source.timestamp,
        source.explode,
        source.deduplicate == "root",
        source.schemas,
        source.message,
        source.aliases,
        CsvDialect(**source.csv.model_dump()) if source.csv else CsvDialect(),
        _sequence_parts(source),
        source.key_format,
        arrow_schema(source.key_columns),
        source.key_schemas,
    )


def _sequence_parts(source: Source) -> SequenceParts | None:
    sequence = source.sequence
    if sequence is None:
        return None
    return SequenceParts(sequence.columns or (), arrow_schema(sequence.source) if sequence.source else None)
