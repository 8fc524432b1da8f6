"""State rows have one declaration: whatever looks at some of their columns finds them in it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate.storage.schema import NEWNESS, STATE_COLUMNS, TIMERS, entry_columns, state_schema

SCHEMA = state_schema([pa.field("value", pa.struct([("n", pa.int64())]))])


@pytest.mark.parametrize("columns", [entry_columns(by_place=True), NEWNESS, TIMERS])
def test_state_file_has_the_compared_columns(columns: tuple[str, ...]) -> None:
    assert set(columns) <= set(SCHEMA.names)


def test_state_file_has_the_columns_of_tables() -> None:
    assert [SCHEMA.field(field.name) for field in STATE_COLUMNS] == list(STATE_COLUMNS)
