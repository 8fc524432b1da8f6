"""The types of a sink's columns, which each kind of database writes in its own words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from tidegate.sinks.sql.dialects import dialect_named


class EmittedType(TypeDecorator[Any]):
    """The type of a column for values of an Arrow type."""

    impl = Text
    cache_ok = True

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__()
        self.arrow = arrow

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect_named(dialect.name).column_type(self.arrow)


class ExactText(TypeDecorator[str]):
    """The type of a text that is compared exactly, such as a key.

    Args:
        longest: The most characters of the text where an index has the column; None: no index has it.
    """

    impl = Text
    cache_ok = True

    def __init__(self, longest: int | None = None) -> None:
        super().__init__()
        self.longest = longest

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect_named(dialect.name).name_type(dialect, self.longest)
