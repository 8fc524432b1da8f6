"""Texts for the fields that are free: columns, expressions, conditions. Others get the grammar's example."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.fuzz.schemas import KINDS, MESSAGE, NAMES, draw_file
from tests.fuzz.tables import ALIKE, COLUMNS
from tidegate.expressions.arrow import type_of
from tidegate.formats.metadata import METADATA
from tidegate.kernel.aggregates import DISTINCT, FUNCTIONS
from tidegate.model.columns import parse_columns, parse_type
from tidegate.yaml.grammar import EXAMPLES

SCALARS = ("string", "int", "bigint", "double", "boolean", "decimal(10,2)", "decimal(38,10)", "date")
TYPES = (*SCALARS, *SCALARS, "timestamp", "smallint", "array<int>", "struct<a:int,b:string>")
_NUMERIC = ("int", "bigint", "double", "smallint")
_OF_KEYS = ("string", "int", "bigint", "smallint", "boolean", "date", "struct<a:int,b:string>")
"""The types of columns that can be in a key."""
_TAKEN = {"numbers": (*_NUMERIC, "decimal(10,2)", "decimal(38,10)"), "booleans": ("boolean",)}
"""What an aggregate takes -> the types of such columns."""


_COLUMN = re.compile(r"`(\w+)`")


@dataclass
class DrawnSource:
    """The facts of a source that other fields refer to."""

    name: str = "source"
    format: str = "json"
    schema: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=lambda: {"value": "string"})


@dataclass
class DrawnStage:
    """The facts of a stage that other fields refer to: `before` and `emitted` are columns with their types,
    `reads` is the stage that it reads, or empty for sources; `sources` are those whose records reach it;
    `emits` is its strategy.
    """

    name: str
    before: dict[str, str]
    emitted: dict[str, str]
    reads: str = ""
    sources: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    left: str | None = None
    emits: str = ""

    @property
    def joins(self) -> bool:
        """Whether it pairs the records of two stages."""
        return self.left is not None


class Texts:
    """The names that the texts of a file may use so far: columns by their types, stage by stage.

    With `plain`, the expressions of the file are columns, which the naive model supports.
    """

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice = dice
        self.folder = folder
        self.plain = dice.random() < 0.4
        self.source = DrawnSource()
        self.sources: dict[str, DrawnSource] = {}
        self.types: dict[str, str] = {}
        self.looked_up: dict[str, str] = {}
        self.reacts = False
        self.stage = DrawnStage("", {}, {})
        self.stages: list[DrawnStage] = []

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the union of all sources."""
        return self._union([*self.sources])

    def begin_source(self, name: str) -> None:
        """Note that from now on the fields of another source are drawn."""
        self.source = self.sources[name] = DrawnSource(name)

    def begin_stage(self) -> None:
        """Note that from now on the fields of another stage are drawn."""
        before = self.stages[-1] if self.stages else None
        columns = before.emitted if before is not None else self.columns
        name, reads = f"stage_{len(self.stages) + 1}", before.name if before is not None else ""
        key = before.key if before is not None else ()
        sources = before.sources if before is not None else tuple(self.sources)
        self.stage = DrawnStage(name, dict(columns), dict(columns), reads, sources, key)
        self.stages.append(self.stage)

    def enter(self, route: Sequence[str]) -> None:
        """Note that the next fields are drawn for the source or the stage of a route in the file."""
        if len(route) > 1 and route[0] == "sources":
            self.source = self.sources.get(route[1], self.source)
        elif len(route) > 1 and route[0] == "stages" and int(route[1]) < len(self.stages):
            self.stage = self.stages[int(route[1])]

    def drop(self, path: str, position: int) -> None:
        """Note that an entry of a list is dropped."""
        if path == "stages.*" and position < len(self.stages):
            del self.stages[position]

    def names(self, path: str) -> list[str]:
        """Return the names of a mapping's fields."""
        path = path.replace(".emit.any.*.", ".emit.")
        if path == "sources":
            return ["orders", "payments", "refunds"][: self.dice.choice((2, 2, 2, 3))]
        if path in ("source.aliases", "stages.*.emit.equal.within", "stages.*.aliases"):
            return [self._column(self.source.columns if path.startswith("source") else self.stage.emitted)]
        return self.dice.sample(["x", "y", "total", "isHigh"], self.dice.choice((1, 1, 2)))

    def note(self, path: str, drawn: Any) -> None:
        """Note what was drawn, if later fields may name it."""
        if path.startswith("source."):
            self._note_source(path, drawn)
        elif path == "lookup.*.columns":
            self.looked_up |= dict.fromkeys(drawn, "any")
        elif path == "lookup.*.on_change":
            self.reacts |= drawn == "emit"
        elif path == "stages.*.from" and drawn is not None:
            self._note_input([drawn] if isinstance(drawn, str) else drawn)
        elif path == "stages.*.key" and drawn is not None:
            self.stage.key = tuple(drawn)
        elif path == "stages.*.join.left":
            self.stage.left = drawn
        elif path == "stages.*.emit.on":
            self.stage.emits = drawn
        elif path == "stages.*.join" and drawn is not None:
            self._note_join(drawn)
        elif path in ("stages.*.select", "stages.*.reduce") and isinstance(drawn, Mapping):
            self.stage.emitted = {name: self._type_of(text) for name, text in drawn.items()}
        elif path == "stages.*.reduce" and drawn == "collect":
            self.stage.emitted = {"events": "array<any>"}

    def _note_source(self, path: str, drawn: Any) -> None:
        source = self.source
        if path == "source.format":
            source.format = drawn
        elif path == "source.columns" and isinstance(drawn, str):
            columns, _ = parse_columns(drawn)
            source.columns = {column.name: column.type for column in columns}
        elif path == "source.metadata":
            fields = drawn.items() if isinstance(drawn, dict) else zip(drawn, drawn, strict=True)
            source.columns |= {column: type_of(METADATA[field].type).text for column, field in fields}
        elif path == "source.headers":
            types = {
                column: header if isinstance(header, str) else header["type"]
                for column, header in drawn.items()
            }
            source.columns |= types

    def _note_input(self, inputs: Sequence[str]) -> None:
        by_name = {stage.name: stage for stage in self.stages}
        if inputs[0] in by_name:
            before = by_name[inputs[0]]
            self.stage.reads, self.stage.key, columns = before.name, before.key, dict(before.emitted)
            self.stage.sources = before.sources
        else:
            self.stage.reads, self.stage.key, columns = "", (), self._union(inputs)
            self.stage.sources = tuple(inputs)
        self.stage.before, self.stage.emitted = columns, dict(columns)

    def _note_join(self, join: Mapping[str, Any]) -> None:
        by_name = {stage.name: stage for stage in self.stages}
        sides = {side: by_name.get(join[side], self.stage).emitted for side in ("left", "right")}
        self.stage.before = {
            f"{side}.{name}": type_ for side, columns in sides.items() for name, type_ in columns.items()
        }
        self.stage.emitted = dict.fromkeys(sides, "any")

    @property
    def _earlier(self) -> list[DrawnStage]:
        """The stages above the present one."""
        return self.stages[: self.stages.index(self.stage)] if self.stage in self.stages else []

    def _union(self, names: Sequence[str]) -> dict[str, str]:
        sources = [self.sources[name] for name in names if name in self.sources] or [self.source]
        columns = {name: type_ for source in sources for name, type_ in source.columns.items()}
        return columns | self.looked_up

    def _type_of(self, text: Any) -> str:
        """Return the type of a column that is a column of the input; `any` for other expressions."""
        column = _COLUMN.fullmatch(text) if isinstance(text, str) else None
        return "any" if column is None else self.stage.before.get(column[1], "any")

    def text(self, path: str) -> str:
        """Return a text for the field at a generic path."""
        # the triggers of `any` have the fields of strategies
        path = path.replace(".emit.any.*.", ".emit.")
        source, stage = self.source, self.stage
        if path == "source.schema" and source.format in KINDS:
            name, source.schema = draw_file(self.dice, source.format, self.folder, source.name)
            source.columns = dict(source.schema)
            return name
        if path in ("source.topics.*", "source.topics.pattern") and self.sources:
            return f"{source.name}{'-.*' * path.endswith('pattern')}"
        if path == "source.message":
            return MESSAGE
        if path in ("source.columns", "source.key_columns"):
            return self._ddl()
        if path in ("source.headers.*", "source.headers.*.type"):
            return self.dice.choice(SCALARS)
        if path == "stages.*.name":
            return stage.name
        if path in ("lookup.*.table", "stages.*.expected.table"):
            return self.dice.choice(("rates/current", "stores/current", "devices/current"))
        if path == "lookup.*.on.*":
            return "key" if self.dice.random() < 0.2 else self._of_types(source.columns, *ALIKE)
        if path == "lookup.*.columns.*":
            return self.dice.choice([*COLUMNS])
        if path == "stages.*.expected.key.*":
            return self.dice.choice(("device", "site"))
        if path == "stages.*.from":
            earlier = [other.name for other in self._earlier]
            sources = [*self.sources] or ["source"]
            if len(earlier) < len(sources) and self.dice.random() < 0.95:
                return sources[len(earlier)]
            return self.dice.choice(
                (*sources, *sources, *earlier) if len(earlier) < 2 else (*sources, *earlier)
            )
        if path == "stages.*.from.*":
            return self.dice.choice([*self.sources] or ["source"])
        if path in ("stages.*.join.left", "stages.*.join.right"):
            return self._side(path.endswith("right"))
        if path == "stages.*.select.*":
            return self._column(stage.before) if stage.joins else self._expression(stage.before)
        if path == "stages.*.reduce.*":
            return self._formula() if self.dice.random() < 0.15 else self._aggregate()
        if path == "stages.*.where":
            return self._condition(stage.emitted)
        if path == "stages.*.emit.until":
            # without `select`, the events of `collect` have all columns
            return self._condition(stage.before if "events" in stage.emitted else stage.emitted)
        if path in ("source.filter", "stages.*.filter"):
            return self._condition(source.columns if path.startswith("source") else stage.before)
        if path == "stages.*.emit.equal.sql":
            name = self._column(stage.emitted)
            return self.dice.choice(
                (f"old.`{name}` = new.`{name}`", f"old.`{name}` is not null and new.`{name}` is not null")
            )
        if path == "stages.*.emit.equal.within.*":
            return self.dice.choice(("0", "0.5", "1%", "100"))
        if path in ("stages.*.emit.columns.*", "stages.*.emit.ignore.*"):
            return self._column(stage.emitted)
        if path == "stages.*.key.*":
            return self._path({n: t for n, t in stage.before.items() if t in _OF_KEYS} or stage.before)
        if path == "source.timestamp.format":
            return self.dice.choice(("epoch_seconds", "epoch_millis", "yyyy-MM-dd[ HH:mm:ss]"))
        if path == "source.timestamp.timezone":
            return self.dice.choice(("UTC", "Europe/Berlin", "Asia/Kolkata"))
        if path == "source.explode":
            return self._of_types(source.columns, *(type_ for type_ in TYPES if type_.startswith("array")))
        if path.startswith("source.") and path.split(".")[1] in ("key", "timestamp"):
            return self._path(source.columns)
        if path in ("source.deduplicate.columns.*", "source.sequence.columns.*"):
            return self._path(source.columns)
        return _example(path)

    def _ddl(self) -> str:
        schema = self.source.schema
        if schema:
            some = self.dice.sample(list(schema), self.dice.randint(1, len(schema)))
            return ", ".join(f"{name} {schema[name]}" for name in some)
        names = self.dice.sample(NAMES, self.dice.randint(2, 5))
        return ", ".join(f"{name} {self._type(name)}" for name in names)

    def _type(self, name: str) -> str:
        """Return the type of a column: in a union of sources it has one, so that others are rare."""
        type_ = self.dice.choice(TYPES)
        return type_ if self.dice.random() < 0.1 else self.types.setdefault(name, type_)

    def _side(self, is_right: bool) -> str:
        """Draw a stage above; the right one often has the key and the input of the left one."""
        earlier = self._earlier
        left = next((stage for stage in earlier if is_right and stage.name == self.stage.left), None)
        if left is not None:
            candidates = [stage for stage in earlier if stage is not left]
            like = [stage for stage in candidates if (stage.reads, stage.key) == (left.reads, left.key)]
            apart = [stage for stage in like if stage.sources != left.sources]
            earlier = apart or like or candidates or earlier
        return self.dice.choice([stage.name for stage in earlier] or [self.stage.name])

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
                *(f"10 div `{number}`", f"cast(`{text}` as date)"),
            )
        )

    def _aggregate(self) -> str:
        function = self.dice.choice(tuple(FUNCTIONS))
        if function == "count" and self.dice.random() < 0.6:
            return "count(*)"
        types = _TAKEN.get(FUNCTIONS[function].takes, SCALARS)
        if not {*types, "any"} & {*self.stage.before.values()}:
            return "count(*)"
        column = f"`{self._of_types(self.stage.before, *types)}`"
        first = f"`{self._of_types(self.stage.before, *SCALARS)}`, " if FUNCTIONS[function].chooses else ""
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
        any_ = f"`{self._of_types(self.stage.before, *SCALARS)}`"
        if not {*_NUMERIC} & {*self.stage.before.values()}:
            return f"count(*) - count({any_})"
        number = f"`{self._of_types(self.stage.before, *_NUMERIC)}`"
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
