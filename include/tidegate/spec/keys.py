"""Which columns can be keys: those that exist, are single values, and whose values have exactly one
spelling.
"""

from __future__ import annotations

from tidegate.expressions.types import ColumnTypes, Type
from tidegate.spec import names
from tidegate.spec.mistakes import Fault, mistake
from tidegate.spec.scope import suggest_column

_NO_KEYS = {
    "float": "numbers with a fraction have more than one way to be written",
    "double": "numbers with a fraction have more than one way to be written",
    "binary": "bytes are not text",
    **dict.fromkeys(("array", "map", "struct"), "only single values can be keys"),
}


def check_key(name: str, columns: ColumnTypes | None) -> str:
    """Return `name` if it can be a key column, and is not the name of a column that every outbox has.

    Raises a mistake otherwise. `columns` is None if the columns have mistakes themselves; then every name
    passes.
    """
    check_identity(name, columns)
    # A key's columns are in the outbox beside those that every outbox has.
    if columns is not None and (meaning := names.RESERVED.get(name.lower())):
        fix = "Use another column, or the record's key (`key: null`)."
        raise mistake(f"`{name}` is reserved: in the outbox it is {meaning}", fix)
    return name


def check_identity(name: str, columns: ColumnTypes | None) -> str:
    """Return `name` if it is a column by which records can be identified. Raises a mistake otherwise.

    A column whose type only Spark knows passes here, and is checked in the batch.
    """
    if columns is None:
        return name
    if name not in columns:
        raise mistake(f"the column `{name}` does not exist", suggest_column(name, columns))
    type_ = columns[name]
    if type_ is not None and (fault := key_fault(name, type_)):
        raise mistake(fault.message, fault.fix)
    return name


def key_fault(name: str, type_: Type) -> Fault | None:
    """Return why a column of this type cannot be a key; None if it can.

    Example: `key_fault("price", DOUBLE)` is a fault, `key_fault("id", BIGINT)` is None.
    """
    if type_.kind not in _NO_KEYS:
        return None
    return Fault(
        f"`{name}` is {type_.text}, and {_NO_KEYS[type_.kind]}", "Use columns such as `string` or `bigint`."
    )
