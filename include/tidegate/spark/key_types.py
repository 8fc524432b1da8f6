"""Compare the types of a stage's key with the types of the keys in its state.

A key is a text, which does not show that 7 was a number, while "07" would be another key. Therefore manifests
have the types beside the files of a stage's state. The type of a value is in the files themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tidegate.errors import PipelineInvalid, Problem
from tidegate.expressions.types import INTEGERS, Type
from tidegate.spark.canonical import KeyTypes
from tidegate.spec.columns import parse_type
from tidegate.spec.keys import key_fault
from tidegate.storage.evolution import column_changed
from tidegate.storage.manifest import DataFile


def key_types_text(keys: KeyTypes) -> str | None:
    """Return column -> Spark's type as JSON, as manifests have it; None if the key is the record's own.

    Example: a key of a column `id` of Spark's type `LongType` gives `{"id": "bigint"}`.
    """
    return json.dumps(_names(keys)) if keys else None


def require_same_key_types(stage: str, files: Iterable[DataFile], keys: KeyTypes) -> None:
    """Raises SchemaChanged if a column of the stage's key has another type than in the files of its state.

    Whole numbers have the same text in any width. Files with records' own keys fit any type.
    """
    types = _names(keys)
    for stored in sorted({file.key_types for file in files if file.key_types is not None}):
        for name, before in json.loads(stored).items():
            now = types.get(name, before)
            if now != before and not {now, before} <= INTEGERS.keys():
                raise column_changed(f"{name} in the key of {stage}", before, now)


def require_usable_key(pipeline: str, stage: str, keys: KeyTypes) -> None:
    """Raises PipelineInvalid if a key column has a type that cannot be a key.

    The grammar refuses such a column if it can derive the type; only Spark derives that of `array(a, b)`.
    """
    faults = [fault for name, type_ in parsed_types(keys).items() if (fault := key_fault(name, type_))]
    if faults:
        field = f"stages.{stage}.key"
        raise PipelineInvalid([Problem(pipeline, 1, field, fault.message, fault.fix) for fault in faults])


def parsed_types(keys: KeyTypes) -> dict[str, Type]:
    """Return the types of a key's columns in the grammar's form."""
    return {name: parse_type(type_.simpleString()) for name, type_ in keys.items()}


def _names(keys: KeyTypes) -> dict[str, str]:
    return {name: type_.simpleString() for name, type_ in keys.items()}
