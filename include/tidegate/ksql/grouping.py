"""The aggregates of a query, and the expressions over them, as stages of a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from tidegate.ksql.aggregates import Folded, fold, is_aggregate
from tidegate.ksql.dialect import KsqlWindow
from tidegate.ksql.expressions import Translator
from tidegate.ksql.items import SelectItem, normal
from tidegate.ksql.relations import Relation
from tidegate.ksql.remarks import Untranslatable
from tidegate.ksql.translated import Translated
from tidegate.ksql.types import BIGINT, name_of
from tidegate.model.names import quote


@dataclass
class AggregateQuery:
    """The aggregates of a query, and the expressions over them."""

    translator: Translator
    window: KsqlWindow | None
    relation: Relation
    arguments: dict[str, str] = field(default_factory=dict)
    folded: dict[str, Folded] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    computes: bool = False

    def value(self, node: exp.Expr, keys: Sequence[SelectItem]) -> Translated:
        """Return an item over aggregates and keys. An aggregate is `{name}` in it."""
        columns: dict[str, Translated] = {}
        alone = node.unnest()
        is_column = isinstance(alone, exp.Column) or normal(alone) in {normal(item.node) for item in keys}
        is_call = isinstance(alone, exp.Anonymous) and is_aggregate(str(alone.this).upper())
        self.computes = self.computes or not (is_column or is_call)

        def plain(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Column) and name_of(part.this) in ("WINDOWSTART", "WINDOWEND"):
                return self._placed(columns, self._bound(name_of(part.this)))
            if isinstance(part, exp.Anonymous) and is_aggregate(str(part.this).upper()):
                return self._placed(columns, self._fold(part))
            return part

        changed = node.copy().transform(plain)
        groups = {normal(item.node): item for item in keys}

        def grouped(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Expr) and not isinstance(part, exp.Identifier):
                item = groups.get(normal(part))
                if item is not None:
                    return self._placed(columns, self._key(item))
            return part

        changed = changed.transform(grouped)
        return replace(self.translator, columns=columns).value(changed)

    def _placed(self, columns: dict[str, Translated], folded: Folded) -> exp.Expr:
        name = next(
            (n for n, other in self.folded.items() if other == folded), f"KSQL_AGG_{len(self.folded)}"
        )
        self.folded[name] = folded
        columns[name] = replace(folded.value, sql=folded.value.sql.replace("{}", f"{{{name}}}"))
        if folded.differs:
            self.differs.append(folded.differs)
        return exp.column(exp.to_identifier(name, quoted=True))

    def _fold(self, node: exp.Anonymous) -> Folded:
        star = any(isinstance(part, exp.Star) for part in node.expressions)
        arguments = [] if star else [self.translator.value(part) for part in node.expressions]
        arguments[:1] = [replace(argument, sql=self._argument(argument)) for argument in arguments[:1]]
        return fold(str(node.this).upper(), arguments, star, alone=self.window is None)

    def _key(self, item: SelectItem) -> Folded:
        typed = self.translator.value(item.node)
        return Folded(
            f"last({self._argument(typed)})", Translated("{}", typed.type, is_certain=True), False, ""
        )

    def _argument(self, argument: Translated) -> str:
        """Return the column with the argument of an aggregate, which a stage before may have made."""
        if argument.literal is not None:
            return argument.sql
        name = next((n for n, sql in self.arguments.items() if sql == argument.sql), None)
        name = name or f"KSQL_ARG_{len(self.arguments)}"
        self.arguments[name] = argument.sql
        return f"<{name}>"

    def _bound(self, name: str) -> Folded:
        """Return the start or the end of the window, of which every record of it tells."""
        if self.window is None:
            raise Untranslatable(f"{name} needs a window", "Write a WINDOW.")
        time = self.translator.value(exp.column(exp.to_identifier("ROWTIME", quoted=True)))
        kind, size = self.window.args["kind"], self.window.args["size"]
        if kind == "HOPPING":
            raise Untranslatable(f"{name} of hopping windows has no equivalent", "Take it from the window.")
        if kind == "SESSION":
            which = "min" if name == "WINDOWSTART" else "max"
            return Folded(
                f"{which}({self._argument(time)})", Translated("{}", BIGINT, is_certain=True), False, ""
            )
        start = f"({time.sql} - pmod({time.sql}, {size}L))"
        end = f"({start} + {size}L)"
        bound = Translated(start if name == "WINDOWSTART" else end, BIGINT)
        return Folded(f"min({self._argument(bound)})", Translated("{}", BIGINT, is_certain=True), False, "")

    def stage(self, columns: Mapping[str, str], values: Mapping[str, Translated]) -> dict[str, Any]:
        """Return `reduce` of the stage. `columns`: argument -> its expression there."""
        aggregates = {name: _filled(folded.sql, columns) for name, folded in self.folded.items()}
        if self.follows:
            return {"reduce": aggregates}
        return {"reduce": {name: _named(value.sql, aggregates) for name, value in values.items()}}

    @property
    def follows(self) -> bool:
        """Whether a stage that follows computes with the aggregates: all of Spark's functions are there."""
        wraps = any(folded.wraps for folded in self.folded.values())
        return self.window is None and (self.computes or wraps)

    def after(self, values: Mapping[str, Translated]) -> list[dict[str, Any]]:
        """Return the stage that follows, if there is one."""
        if not self.follows:
            return []
        names = {name: quote(name) for name in self.folded}
        select = {name: _named(value.sql, names) for name, value in values.items()}
        return [{"name": "results", "select": select, "emit": {"on": "update"}}]


def _filled(sql: str, columns: Mapping[str, str]) -> str:
    for name, expression in columns.items():
        sql = sql.replace(f"<{name}>", expression)
    return sql


def _named(sql: str, expressions: Mapping[str, str]) -> str:
    for name, expression in expressions.items():
        sql = sql.replace(f"{{{name}}}", expression)
    return sql
