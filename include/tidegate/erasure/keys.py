"""The keys that are erased, and which keys of other stages contain them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import SettingsInvalid
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import stage_named

_OWN = ("key",)
"""The name of the column that an outbox has of a key that is the record's own."""


@dataclass(frozen=True)
class ErasedKeys:
    """Keys of one stage, as `tidegate state` writes them.

    Args:
        texts: the keys.
        columns: the columns that they are made of; empty if a key is the record's own.

    Example: `ErasedKeys(("7",), ("customer",))` matches the key `7` of a stage with `key: [customer]`, and
    the key `{"customer":7,"day":"2026-01-31"}` of a stage with `key: [customer, day]`.
    """

    texts: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def of_stage(cls, pipeline: Pipeline, stage: str | None, texts: Iterable[str]) -> ErasedKeys:
        """Return keys of a stage; None: of the first stage, whose key is that of the source.

        Raises SettingsInvalid if the stage does not exist, no key is named, or one is not a key of the stage.
        """
        stages = pipeline.stages
        chosen = stages[0] if stage is None else stage_named(stages, stage, pipeline.pipeline)
        keys = cls(tuple(dict.fromkeys(texts)), pipeline.key_of(chosen))
        if not keys.texts:
            raise SettingsInvalid("No key is named", "Name it: --key KEY, or --keys-from FILE.")
        for text in keys.texts:
            keys.require_key(text)
        return keys

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> ErasedKeys:
        """Return the keys that the ledger has of an erasure that is not finished."""
        return cls(tuple(request["keys"]), tuple(request["columns"]))

    @property
    def request(self) -> dict[str, Any]:
        """The keys for the ledger."""
        return {"keys": list(self.texts), "columns": list(self.columns)}

    def require_key(self, text: str) -> None:
        """Raise SettingsInvalid if a text cannot be a key of the columns."""
        if len(self.columns) > 1 and self._parts(text, self.columns) is None:
            example = ",".join(f'"{name}":…' for name in self.columns)
            raise SettingsInvalid(
                f"{text!r} is not a key of the columns {', '.join(self.columns)}",
                f"Write it as `tidegate state` does: {{{example}}}.",
            )

    def may_match(self, columns: Sequence[str] | None) -> bool:
        """Return whether keys of these columns contain the erased ones; None: the columns are not stored, and
        texts are compared.
        """
        return columns is None or self.is_same(columns) or self._is_part_of(columns)

    def mask(
        self, columns: Sequence[str] | None, keys: pa.ChunkedArray, are_objects: bool = False
    ) -> pa.ChunkedArray:
        """Return which keys, made of these columns, contain an erased one. A null is none.

        `are_objects`: a key of one column is a JSON object, too, as in the state of `deduplicate`.
        """
        are_texts = not are_objects or len(self.columns) > 1
        if columns is None or (are_texts and self.is_same(columns)):
            return pc.fill_null(pc.is_in(keys, pa.array(self.texts, pa.string())), False)
        if not self._is_part_of(columns):
            return pa.chunked_array([pa.repeat(False, len(keys))])
        contained = (self._parts(key, columns, are_objects) in self._values for key in keys.to_pylist())
        return pa.chunked_array([pa.array(contained, pa.bool_())])

    def is_in_record(self, key: bytes | None, value: bytes | None) -> bool | None:
        """Return whether a record in quarantine is of an erased key; None if that cannot be known.

        Its Kafka key is compared, and the columns of a value that is a JSON object. A value in another format
        was not decoded, so only its key is known.
        """
        text = None if key is None else key.decode(errors="replace")
        if text is not None and (text in self.texts or self._in_object(text)):
            return True
        columns = None if value is None or not self.columns else _object(value.decode(errors="replace"))
        if columns is None:
            return False if text is not None and not self.columns else None
        return self._of_columns(columns) in self._values

    def _in_object(self, text: str) -> bool:
        columns = _object(text) if self.columns else None
        return columns is not None and self._of_columns(columns) in self._values

    def is_same(self, columns: Sequence[str]) -> bool:
        """Return whether keys of these columns are such keys."""
        return tuple(columns) == self.columns or (not self.columns and tuple(columns) == _OWN)

    def _is_part_of(self, columns: Sequence[str]) -> bool:
        return bool(self.columns) and set(self.columns) <= set(columns)

    @cached_property
    def _values(self) -> frozenset[tuple[str, ...] | None]:
        return frozenset(self._parts(text, self.columns) for text in self.texts)

    def _parts(
        self, key: str | None, columns: Sequence[str], is_object: bool = False
    ) -> tuple[str, ...] | None:
        """Return the texts of the erased columns in a key of these columns; None if it lacks one."""
        if key is None or (len(columns) == 1 and not is_object):
            return None if key is None else (key,)
        contents = _object(key)
        return None if contents is None else self._of_columns(contents)

    def _of_columns(self, columns: Mapping[str, Any]) -> tuple[str, ...] | None:
        parts = tuple(_text(columns.get(name)) for name in self.columns)
        return None if None in parts else parts  # type: ignore[return-value]


def _object(text: str) -> Mapping[str, Any] | None:
    """Return a JSON object, with its numbers as texts; None if the text is none."""
    try:
        # Numbers stay as they are written: 0.10 is another key than 0.1.
        contents = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return contents if isinstance(contents, dict) else None


def _text(part: Any) -> str | None:
    """Return the text of a key column, as in a key of this column alone."""
    if part is None or isinstance(part, (dict, list)):
        return None
    return part if isinstance(part, str) else json.dumps(part)
