"""Parse canonical keys back into their columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats import JsonDecoder


@dataclass(frozen=True)
class KeyColumns:
    """The columns of a key, in order, with Arrow's types; empty: the key is the record's own text."""

    schema: pa.Schema

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return list(self.schema.names)

    @property
    def type(self) -> pa.StructType:
        """The type of `parsed`."""
        return pa.struct(list(self.schema) if self.names else [pa.field("key", pa.string())])

    def parsed(self, keys: pa.StringArray) -> pa.StructArray:
        """Return the columns of canonical keys: one column is the key's text, several are a JSON object.

        Example: for columns `id` and `region`, `{"id":7,"region":"eu"}` gives the struct with 7 and "eu".
        """
        if not self.names:
            return pa.StructArray.from_arrays([keys], ["key"])
        if len(self.names) == 1:
            field = self.schema.field(0)
            return pa.StructArray.from_arrays([_from_text(keys, field.type)], fields=[field])
        return self._decoder.decode(keys.cast(pa.binary()).to_pylist()).columns

    @cached_property
    def _decoder(self) -> JsonDecoder:
        return JsonDecoder(self.schema)


def _from_text(keys: pa.StringArray, type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pc.assume_timezone(keys.cast(pa.timestamp("us")), "UTC")
    return keys.cast(type_)
