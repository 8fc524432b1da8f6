"""Decode the columns of records' own keys, and make the keys of null values, which have no columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.formats.csv import column_of
from tidegate.formats.decoded import Decoder, Reason, WatchedDecoder
from tidegate.formats.json import JsonDecoder
from tidegate.formats.json.coercion import CoercingDecoder
from tidegate.formats.records import RecordLayout
from tidegate.formats.registry import formats
from tidegate.kernel.keys import canonical_keys


class OwnKeyColumns:
    """Decodes the columns of records' own keys. Only for a `key_format` that has columns."""

    def __init__(self, layout: RecordLayout) -> None:
        decoder = formats()[layout.key_format].key_decoder
        assert decoder is not None, "the pipeline file was checked"
        self._names = layout.key_columns.names
        own = decoder(layout.key_columns, layout.key_schemas)
        if layout.coerces and formats()[layout.key_format].is_json:
            own = CoercingDecoder(own, {})
        self._decoder = WatchedDecoder(own)

    def decode(self, keys: Sequence[bytes | None]) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Return the columns, and row -> why its key cannot be used."""
        decoded = self._decoder.decode(keys)
        reasons = {
            row: f"{Reason.MALFORMED_KEY}: {reason.removeprefix(f'{Reason.MALFORMED}: ')}"
            for row, reason in decoded.reasons.items()
        }
        return dict(zip(self._names, decoded.columns.flatten(), strict=True)), reasons


class NullValueKeys:
    """Makes the keys of null values from the records' own keys, and from metadata that is part of the key.

    An own key is the text of the one column of the value that the key has, or a JSON object of several.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self._names, self._with_nulls = layout.key, layout.keeps_null_keys
        metadata = layout.metadata.schema.names
        of_value = [name for name in layout.key if name not in metadata]
        self._of_metadata = [name for name in layout.key if name in metadata]
        self._of_value = pa.schema([layout.row_columns.field(name) for name in of_value])
        decoder = self._new_decoder(layout)
        self._decoder = None if decoder is None else WatchedDecoder(decoder)

    def _new_decoder(self, layout: RecordLayout) -> Decoder | None:
        null_key_decoder = formats()[layout.format].null_key_decoder
        if null_key_decoder is not None:
            return null_key_decoder(self._of_value, layout.aliases)
        return JsonDecoder(self._of_value, layout.aliases) if len(self._of_value) > 1 else None

    @property
    def needs_own_keys(self) -> bool:
        """Whether a part of the key is in records' own keys."""
        return bool(self._of_value.names)

    def of_rows(self, own_keys: pa.StringArray, rows: pa.RecordBatch) -> pa.StringArray:
        """Return the canonical keys; null if a part of one is missing."""
        if self._decoder is None and not self._of_metadata:
            return own_keys
        columns = {name: rows.column(name) for name in self._of_metadata}
        if self._decoder is not None:
            parts = self._decoder.decode(own_keys.cast(pa.binary()).to_pylist()).columns.flatten()
            columns |= dict(zip(self._of_value.names, parts, strict=True))
        elif self.needs_own_keys:
            columns[self._of_value.names[0]] = column_of(own_keys, self._of_value.field(0), {})
        return canonical_keys(self._names, [columns[name] for name in self._names], self._with_nulls)
