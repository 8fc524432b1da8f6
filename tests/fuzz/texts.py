"""Texts for the fields that are free: columns, expressions, conditions. Others get the grammar's example."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.fuzz.schemas import KINDS, MESSAGE, NAMES, draw_file
from tidegate.expressions.arrow import type_of
from tidegate.formats.metadata import METADATA
from tidegate.kernel.aggregates import DISTINCT, FUNCTIONS
from tidegate.model.columns import parse_columns, parse_type
from tidegate.yaml.grammar import EXAMPLES

SCALARS = ("string", "int", "bigint", "double", "boolean", "decimal(10,2)", "decimal(38,10)", "date")
TYPES = (*SCALARS, *SCALARS, "timestamp", "smallint", "array<int>", "struct<a:int,b:string>")
_NUMERIC = ("int", "bigint", "double", "smallint")
_TAKEN = {"numbers": (*_NUMERIC, "decimal(10,2)", "decimal(38,10)"), "booleans": ("boolean",)}
"""What an aggregate takes -> the types of such columns."""


class Texts:
    """The names that the texts of a file may use so far: columns by their types, stage by stage.

    With `plain`, the expressions of the file are columns, which the naive model supports.
    """

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice = dice
        self.folder = folder
        self.plain = dice.random() < 0.4
        self.format = "json"
        self.schema: dict[str, str] = {}
        self.columns: dict[str, str] = {"value": "string"}
        self.stages = 0
        self.before: dict[str, str] = {}
        self.emitted: dict[str, str] = {}
        self.outputs: dict[str, dict[str, str]] = {}

    def begin_stage(self) -> None:
        """Note that from now on the fields of another stage are drawn."""
        self.before = self.emitted if self.stages else self.columns
        self.emitted = dict(self.before)
        self.stages += 1

    def end_stage(self) -> None:
        """Note that a stage is complete."""
        self.outputs[f"stage_{self.stages}"] = self.emitted

    def names(self, path: str) -> list[str]:
        """Return the names of a mapping's fields."""
        path = path.replace(".emit.any.*.", ".emit.")
        if path in ("source.aliases", "stages.*.emit.equal.within", "stages.*.aliases"):
            return [self._column(self.columns if path.startswith("source") else self.emitted)]
        return self.dice.sample(["x", "y", "total", "isHigh"], self.dice.choice((1, 1, 2)))

    def note(self, path: str, drawn: Any) -> None:
        """Note what was drawn, if later fields may name it."""
        if path == "source.format":
            self.format = drawn
        elif path == "source.columns" and isinstance(drawn, str):
            columns, _ = parse_columns(drawn)
            self.columns = {column.name: column.type for column in columns}
        elif path == "source.metadata":
            fields = drawn.items() if isinstance(drawn, dict) else zip(drawn, drawn, strict=True)
            self.columns |= {column: type_of(METADATA[field].type).text for column, field in fields}
        elif path == "source.headers":
            types = {
                column: header if isinstance(header, str) else header["type"]
                for column, header in drawn.items()
            }
            self.columns |= types
        elif path == "stages.*.from" and drawn is not None:
            self.before = self.outputs.get(drawn, self.columns)
            self.emitted = dict(self.before)
        elif path in ("stages.*.select", "stages.*.reduce") and isinstance(drawn, Mapping):
            self.emitted = dict.fromkeys(drawn, "any")
        elif path == "stages.*.reduce" and drawn == "collect":
            self.emitted = {"events": "array<any>"}

    def text(self, path: str) -> str:
        """Return a text for the field at a generic path."""
        # the triggers of `any` have the fields of strategies
        path = path.replace(".emit.any.*.", ".emit.")
        if path == "source.schema" and self.format in KINDS:
            name, self.schema = draw_file(self.dice, self.format, self.folder)
            self.columns = dict(self.schema)
            return name
        if path == "source.message":
            return MESSAGE
        if path in ("source.columns", "source.key_columns"):
            return self._ddl()
        if path in ("source.headers.*", "source.headers.*.type"):
            return self.dice.choice(SCALARS)
        if path == "stages.*.name":
            return f"stage_{self.stages}"
        if path == "stages.*.from":
            return self.dice.choice(("source", *self.outputs))
        if path == "stages.*.select.*":
            return self._expression(self.before)
        if path == "stages.*.reduce.*":
            return self._formula() if self.dice.random() < 0.15 else self._aggregate()
        if path == "stages.*.where":
            return self._condition(self.emitted)
        if path == "stages.*.emit.until":
            # without `select`, the events of `collect` have all columns
            return self._condition(self.before if "events" in self.emitted else self.emitted)
        if path in ("source.filter", "stages.*.filter"):
            return self._condition(self.columns if path.startswith("source") else self.before)
        if path == "stages.*.emit.equal.sql":
            name = self._column(self.emitted)
            return self.dice.choice(
                (f"old.`{name}` = new.`{name}`", f"old.`{name}` is not null and new.`{name}` is not null")
            )
        if path == "stages.*.emit.equal.within.*":
            return self.dice.choice(("0", "0.5", "1%", "100"))
        if path in ("stages.*.emit.columns.*", "stages.*.emit.ignore.*"):
            return self._column(self.emitted)
        if path == "stages.*.key.*":
            return self._path(self.before)
        if path == "source.timestamp.format":
            return self.dice.choice(("epoch_seconds", "epoch_millis", "yyyy-MM-dd[ HH:mm:ss]"))
        if path == "source.timestamp.timezone":
            return self.dice.choice(("UTC", "Europe/Berlin", "Asia/Kolkata"))
        if path.startswith("source.") and path.split(".")[1] in ("key", "timestamp", "explode"):
            return self._path(self.columns)
        if path in ("source.deduplicate.columns.*", "source.sequence.columns.*"):
            return self._path(self.columns)
        return _example(path)

    def _ddl(self) -> str:
        if self.schema:
            some = self.dice.sample(list(self.schema), self.dice.randint(1, len(self.schema)))
            return ", ".join(f"{name} {self.schema[name]}" for name in some)
        names = self.dice.sample(NAMES, self.dice.randint(2, 5))
        return ", ".join(f"{name} {self.dice.choice(TYPES)}" for name in names)

    def _column(self, columns: Mapping[str, str]) -> str:
        return self.dice.choice(list(columns) or ["n"])

    def _path(self, columns: Mapping[str, str]) -> str:
        """Draw a column, or a field of a struct."""
        name = self._column(columns)
        if not columns.get(name, "").startswith("struct") or self.dice.random() < 0.2:
            return name
        return f"{name}.{self.dice.choice(parse_type(columns[name]).fields)[0]}"

    def _of_types(self, columns: Mapping[str, str], *types: str) -> str:
        fitting = [name for name, type_ in columns.items() if type_ in types]
        return self.dice.choice(fitting or list(columns) or ["n"])

    def _expression(self, columns: Mapping[str, str]) -> str:
        if self.plain:
            return f"`{self._column(columns)}`"
        any_, number = self._column(columns), self._of_types(columns, *_NUMERIC)
        text = self._of_types(columns, "string")
        return self.dice.choice(
            (
                *(f"`{any_}`", f"`{any_}`", f"`{number}` > 0", f"`{number}` + 1", f"`{any_}` is null"),
                *(f"upper(`{text}`)", f"concat(`{text}`, '!')", f"coalesce(`{any_}`, null)"),
                *(f"cast(`{any_}` as string)", f"if(`{number}` > 10, 'high', 'low')", f"`{number}` / 2"),
                *(f"cast(`{text}` as int)", f"abs(`{number}`)", f"`{number}` * `{number}`"),
            )
        )

    def _aggregate(self) -> str:
        function = self.dice.choice(tuple(FUNCTIONS))
        if function == "count" and self.dice.random() < 0.6:
            return "count(*)"
        types = _TAKEN.get(FUNCTIONS[function].takes, SCALARS)
        if not {*types, "any"} & {*self.before.values()}:
            return "count(*)"
        column = f"`{self._of_types(self.before, *types)}`"
        first = f"`{self._of_types(self.before, *SCALARS)}`, " if FUNCTIONS[function].chooses else ""
        call = f"count(distinct {column})" if function == DISTINCT else f"{function}({first}{column})"
        if FUNCTIONS[function].parameter:
            shapes = (
                (f"top({first}2, {column})", f"top({column}, 3)")
                if first
                else (f"percentile({column}, 0.9)",)
            )
            call = self.dice.choice(shapes)
        return f"{call} filter (where {column} is not null)" if self.dice.random() < 0.2 else call

    def _formula(self) -> str:
        any_ = f"`{self._of_types(self.before, *SCALARS)}`"
        if not {*_NUMERIC} & {*self.before.values()}:
            return f"count(*) - count({any_})"
        number = f"`{self._of_types(self.before, *_NUMERIC)}`"
        return self.dice.choice(
            (
                *(f"sum({number}) / count(*)", f"count(*) - count({any_})", f"count({number}) + count(*)"),
                *(f"coalesce(max({number}), 0) > 1", f"round(avg({number}), 1)"),
                f"count({number}) div (count(*) - count(distinct {number}))",
            )
        )

    def _condition(self, columns: Mapping[str, str]) -> str:
        name, number = self._column(columns), self._of_types(columns, *_NUMERIC)
        return self.dice.choice((f"`{name}` is not null", f"`{name}` is null", f"`{number}` > 1", "true"))


def _example(path: str) -> str:
    """Return the value of the grammar's own example of a field."""
    example = EXAMPLES.get(path)
    if example is None:
        return path.rpartition(".")[2] if not path.endswith(".*") else _first(_example(path[:-2]))
    written = yaml.safe_load(example.replace("…", "{}"))
    value = next(iter(written.values()))
    return str(_first(value))


def _first(value: Any) -> Any:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value
