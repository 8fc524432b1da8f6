"""Random edits of columns between batches, against a naive reader that keeps Python values and no types."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.spark.evolving import Evolving, pipeline_of
from tidegate.model.pipeline import Pipeline

CHAINS = (
    ("tinyint", "smallint", "int", "bigint", "decimal(24,3)"),
    ("smallint", "int", "double"),
    ("float", "double"),
    ("decimal(6,2)", "decimal(8,3)", "decimal(20,6)"),
    ("string",),
)
"""Types, each of which is wider than the one before."""
KEYS = "abc"
NUMBERS = (None, 0, 1, 2.5, 0.1)


@dataclass(frozen=True)
class Column:
    """A column, under any name. `shape` has its values inside of a struct, a list or a map."""

    identity: int
    name: str
    chain: int
    width: int = 0
    shape: str = "{}"
    older: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        return self.shape.format(CHAINS[self.chain][self.width])

    def valued(self, number: float | None) -> Any:
        """A record's value, exactly as a column of this type has it."""
        plain = _as_type(CHAINS[self.chain][self.width], number)
        if number is None or self.shape == "{}":
            return plain
        return {"array<{}>": [plain], "map<string,{}>": [("k", plain)]}.get(self.shape, {"f": plain})


def _as_type(type_: str, number: float | None) -> Any:
    if number is None:
        return None
    if type_.startswith("decimal"):
        return Decimal(str(number)).quantize(Decimal(1).scaleb(-int(type_[:-1].split(",")[1])))
    if type_ == "float":
        return float(np.float32(number))
    return {"double": float, "string": str}.get(type_, int)(number)


@dataclass
class Naive:
    """The last emitted value of each key: of each column, by its identity, a Python value."""

    last: dict[str, dict[int, Any]] = field(default_factory=dict)

    def emits(self, key: str, value: Mapping[int, Any] | None) -> bool:
        """Whether a record goes out, which is remembered then."""
        last = self.last.get(key)
        if value is None:
            return self.last.pop(key, None) is not None
        if last is not None and all(last.get(identity) == new for identity, new in value.items()):
            return False
        self.last[key] = dict(value)
        return True


@dataclass(frozen=True)
class Edited:
    """A pipeline's columns after some edits, those that were removed, and how many there ever were."""

    columns: tuple[Column, ...]
    removed: tuple[Column, ...] = ()
    number: int = 1

    def pipeline(self, emit: Mapping[str, Any]) -> Pipeline:
        """Records have each column by its identity, so that only the stage is renamed."""
        source = ", ".join(f"c{column.identity} {column.type}" for column in self.columns)
        aliases = {column.name: [*column.older] for column in self.columns if column.older}
        select = {column.name: f"c{column.identity}" for column in self.columns}
        return pipeline_of(source, {"select": select, "emit": emit, "aliases": aliases})


SHAPES = st.sampled_from(["{}", "{}", "{}", "struct<f:{}>", "array<{}>", "map<string,{}>"])


@st.composite
def edited(draw: st.DrawFn, before: Edited, planned: Edited) -> Edited:
    """One edit more. A new name is given to columns that were `planned`: others have none to be known by."""
    kind = draw(st.sampled_from(["add", "remove", "widen", "rename", "restore", "reorder", "nothing"]))
    columns, number = before.columns, before.number
    chosen = draw(st.sampled_from(columns))
    other_columns = tuple(column for column in columns if column != chosen)
    if kind == "add":
        added = Column(number, f"n{number}", draw(st.sampled_from(range(len(CHAINS)))), shape=draw(SHAPES))
        return replace(before, columns=(*columns, added), number=number + 1)
    if kind == "remove" and other_columns:
        # a name that was another before is not used again: see `test_a_name_that_is_free_again`
        return replace(
            before, columns=other_columns, removed=(*before.removed, *([] if chosen.older else [chosen]))
        )
    if kind == "widen" and chosen.width + 1 < len(CHAINS[chosen.chain]):
        return replace(before, columns=(*other_columns, replace(chosen, width=chosen.width + 1)))
    if kind == "rename" and chosen.name in [column.name for column in planned.columns]:
        name = f"n{chosen.identity}_{len(chosen.older) + 1}"
        renamed = replace(chosen, name=name, older=(chosen.name, *chosen.older))
        return replace(before, columns=(*other_columns, renamed))
    if kind == "restore" and before.removed:
        *rest, last = before.removed
        return replace(before, columns=(*columns, last), removed=tuple(rest))
    return replace(before, columns=(*other_columns, chosen)) if kind == "reorder" else before


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Edited, list[tuple[str, Any]], int | None]]:
    """Batches: columns, records (key, and a number for each column), and how many files are folded then."""
    state, history = Edited((Column(0, "n0", draw(st.integers(0, len(CHAINS) - 1))),)), []
    for _ in range(draw(st.integers(2, 5))):
        numbers = st.none() | st.lists(
            st.sampled_from(NUMBERS), min_size=len(state.columns), max_size=len(state.columns)
        )
        records = draw(st.lists(st.tuples(st.sampled_from(KEYS), numbers), max_size=5))
        history.append((state, records, draw(st.none() | st.integers(1, 4))))
        planned = state
        for _ in range(draw(st.integers(0, 3))):
            state = draw(edited(state, planned))
    return history


@examples(25)
@given(histories(), st.sampled_from([{"on": "change"}, {"on": "change", "heartbeat": "999d"}]))
def test_emissions_are_those_of_values_without_types(
    history: list[tuple[Edited, list[tuple[str, Any]], int | None]], emit: dict[str, Any]
) -> None:
    naive = Naive()
    with tempfile.TemporaryDirectory() as folder:
        stream = Evolving(Path(folder))
        for state, records, folded in history:
            expected = list(_expected(naive, state, records))
            named = [(key, _named(state, numbers)) for key, numbers in records]
            assert stream.batch(state.pipeline(emit), named) == expected
            if folded is not None:
                stream.compact(folded)
        last, rows = history[-1][0], stream.state()
        assert rows.keys() == naive.last.keys()
        for key, values in naive.last.items():
            seen = rows[key]["emitted"]
            assert {column.name: seen.get(column.name) for column in last.columns} == {
                column.name: values.get(column.identity) for column in last.columns
            }


def _named(state: Edited, numbers: list[Any] | None) -> dict[str, Any] | None:
    if numbers is None:
        return None
    pairs = zip(state.columns, numbers, strict=True)
    return {column.name: column.valued(number) for column, number in pairs}


def _expected(
    naive: Naive, state: Edited, records: list[tuple[str, Any]]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    for key in KEYS:
        for of_key, numbers in records:
            named = _named(state, numbers)
            value = named and {column.identity: named[column.name] for column in state.columns}
            if of_key == key and naive.emits(key, value):
                yield key, named
