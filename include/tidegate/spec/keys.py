"""What can be a key: a column that exists, is a single value, and has one way to be written."""

from __future__ import annotations

from tidegate.spec import names
from tidegate.spec.columns import Type
from tidegate.spec.constants import Known
from tidegate.spec.mistakes import Fault, mistake
from tidegate.spec.scope import among

_NO_KEYS = {
    "float": "numbers with a fraction have more than one way to be written",
    "double": "numbers with a fraction have more than one way to be written",
    "binary": "bytes are not text",
    **dict.fromkeys(("array", "map", "struct"), "only single values can be keys"),
}


def check_key(name: str, known: Known | None) -> str:
    """A key column: usable, and not called like one of the outbox's own."""
    check_identity(name, known)
    if known is not None and (meaning := names.RESERVED.get(name.lower())):
        fix = "Use another column, or the record's key (`key: null`)."
        raise mistake(f"`{name}` is reserved: in the outbox it is {meaning}", fix)
    return name


def check_identity(name: str, known: Known | None) -> str:
    """A column by which records are the same or not. Types that only Spark knows are checked in the batch."""
    if known is None:
        return name
    if name not in known:
        raise mistake(f"the column `{name}` does not exist", among(name, known))
    type_ = known[name]
    if type_ is not None and (fault := key_fault(name, type_)):
        raise mistake(fault.message, fault.fix)
    return name


def key_fault(name: str, type_: Type) -> Fault | None:
    """Return why a column of this type cannot be a key; None if it can."""
    if type_.kind not in _NO_KEYS:
        return None
    return Fault(
        f"`{name}` is {type_.text}, and {_NO_KEYS[type_.kind]}", "Use columns such as `string` or `bigint`."
    )
