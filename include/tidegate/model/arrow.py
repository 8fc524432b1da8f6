"""The Arrow schema of a pipeline file's columns."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidegate.expressions.arrow import arrow_type
from tidegate.model.columns import Column, parse_type


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of a source's columns, with the types by which Spark exchanges data with Arrow.

    Raises BadType if the type of a column cannot be parsed.
    """
    return pa.schema([pa.field(column.name, arrow_type(parse_type(column.type))) for column in columns])
