"""The passes that read records of sources: which of them read a source, its key, and the columns of several
sources together.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.model.pipeline import Pipeline
from tidegate.model.source import Source
from tidegate.spark.source import spark_types
from tidegate.spark.steps import KernelPass, KeyTypes, record_layout


def readers_of_source(source: str, level: Sequence[KernelPass]) -> tuple[int, ...]:
    """Return the numbers of the passes of a level that read the records of a source.

    The first of them gets the records that cannot be used, and what becomes of a record in it is the fate of
    the record in the batch: see `accounting_passes`.
    """
    readers = [number for number, pass_ in enumerate(level) if source in pass_.sources]
    accounting = [pass_.name for pass_ in accounting_passes(level)]
    return tuple(sorted(readers, key=lambda number: level[number].name not in accounting))


def accounting_passes(level: Sequence[KernelPass]) -> list[KernelPass]:
    """Return passes of the first level that read each source once: their counts together are those of the
    batch.

    Example: of passes that read `a`, `a` and `b`, and `b`, the first and the last; of passes that read `a`,
    and `a` and `b`, the second.

    If there are none, as of `a` and `b`, `b` and `c`, some sources are left over.
    """
    sources = list(dict.fromkeys(source for pass_ in level for source in pass_.sources))
    return _cover(sources, level) or _apart(level)


def _cover(sources: Sequence[str], level: Sequence[KernelPass]) -> list[KernelPass]:
    """Return passes that read each of the sources exactly once; empty if there are none."""
    for pass_ in level:
        if sources and sources[0] in pass_.sources and {*pass_.sources} <= {*sources}:
            rest = [source for source in sources if source not in pass_.sources]
            readers = _cover(rest, level) if rest else []
            if readers or not rest:
                return [pass_, *readers]
    return []


def _apart(level: Sequence[KernelPass]) -> list[KernelPass]:
    """Return passes that have no source in common, each the first possible one."""
    apart: list[KernelPass] = []
    for pass_ in level:
        if all({*pass_.sources}.isdisjoint(other.sources) for other in apart):
            apart.append(pass_)
    return apart


def source_keys(source: Source) -> KeyTypes:
    """Return the columns of a source's key."""
    columns = spark_types(record_layout(source).row_columns)
    return {name: columns[name].dataType for name in source.key or ()}


def union_schema(pipeline: Pipeline, pass_: KernelPass) -> pa.Schema:
    """Return the columns that the expressions of a pass may name in records of its sources.

    A column that a source lacks is null in its records.
    """
    layouts = [record_layout(pipeline.sources[name]) for name in pass_.sources]
    fields = {field.name: field for layout in reversed(layouts) for field in layout.row_columns}
    return pa.schema(list(fields.values()))
