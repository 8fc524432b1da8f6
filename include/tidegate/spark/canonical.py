"""Keys as text, in Spark's expressions, for emissions that the next stage regroups.

`decoding` makes the same texts of keys in the source's columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructType

KeyTypes = Mapping[str, DataType]
"""The columns of a key, in order; empty if the key is the record's own."""

_JSON = {"ignoreNullFields": "false"} | {
    # without a format Spark cuts what it writes to milliseconds: two times would be one
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_TIMES = {
    # ISO 8601. Without a format Spark takes "10:30" for half past ten today, whenever today is.
    "timestampFormat": "yyyy-MM-dd['T'][ ]HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd['T'][ ]HH:mm:ss[.SSSSSS]",
}


def to_json(value: Column | str) -> Column:
    """Return a struct as JSON text: nulls are written, and times to the microsecond. See `core.json_text`.

    Example: a struct of `id` 7 and a null `note` is `{"id":7,"note":null}`.
    """
    return F.to_json(value, _JSON)


def canonical_key(parts: Mapping[str, Column]) -> Column:
    """Return the text of one column, or a JSON object of several, in their order; null if one of them is
    null.

    Example: the column `id` with 7 is `7`; `id` with 7 and `region` with "eu" are `{"id":7,"region":"eu"}`.
    """
    if len(parts) == 1:
        return next(iter(parts.values())).cast("string")
    struct = F.struct(*[part.alias(name) for name, part in parts.items()])
    return F.when(reduce(and_, (part.isNotNull() for part in parts.values())), to_json(struct))


def key_columns(keys: KeyTypes) -> dict[str, Column]:
    """Return the columns from which the canonical key in the column `key` was made."""
    if not keys:
        return {}
    if len(keys) == 1:
        name, type_ = next(iter(keys.items()))
        return {name: F.col("key").cast(type_)}
    ddl = StructType()
    for name, type_ in keys.items():
        ddl = ddl.add(name, type_)
    parsed = F.from_json("key", ddl, _TIMES)
    return {name: parsed[name] for name in keys}
