"""`reduce`: how a stage folds records into a value: `latest`, `collect`, or aggregates.

`unchanged` says which columns of a record leave the value as it was, such as a large column that a database
did not log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.expressions.arrow import arrow_type, type_of
from tidegate.expressions.types import ANY, BIGINT, ColumnTypes, Type, group
from tidegate.kernel import Aggregate, Aggregates
from tidegate.kernel.aggregates import DISTINCT, FUNCTIONS
from tidegate.kernel.reduce.collect import EVENTS, Collect
from tidegate.kernel.reduce.latest import Latest
from tidegate.model import lexis, names
from tidegate.model.condition import expression_type, type_of_no_condition
from tidegate.model.mistakes import Fault, as_mistake, did_you_mean, listed, mistake, shown
from tidegate.model.options import Reader, read_as
from tidegate.model.scope import StoredAs, scope_of
from tidegate.model.sql import check_expression

WORDS: Mapping[str, kernel.Reduce] = {reduce.word: reduce for reduce in (Latest(), Collect())}
"""The word in a file -> the reduce; aggregates have names in place of a word."""

NAMES = tuple(name for name in FUNCTIONS if name != DISTINCT)
"""The names of aggregate functions in a file."""
_EXAMPLE = f"Write `count(*)`, or one of {listed(NAMES)} of one expression: `sum(quantity)`."
_REFUSED = {
    "over": Fault("`over` is not used here", "Leave it out: aggregates are per key, and per `window:`."),
}
_DISTINCT = Fault("`distinct` is not used here", "Use `count(distinct x)`, or `collect_set(x)`.")
_FILTER = "Write `sum(x) filter (where x > 0)`."
_BY = "Write `min_by(price, at)`, which is the price with the least `at`."


class Call(NamedTuple):
    """An aggregate as it is written: the function and its arguments; `count(*)` has none.

    Example: `min_by(price, at)` is `Call("min_by", "price", "at")`.
    """

    function: str
    argument: str | None = None
    by: str | None = None

    def filtered(self, condition: str | None) -> Call:
        """Return the aggregate of those records for which a condition is true."""
        if condition is None:
            return self
        if self.by is not None:
            return self._replace(by=f"case when {condition} then {self.by} end")
        return self._replace(argument=f"case when {condition} then {self.argument or 1} end")


def parse_aggregate(text: str, columns: ColumnTypes | None) -> tuple[Call, list[Fault]]:
    """Parse an aggregate. Returns it, and all faults.

    Example: `parse_aggregate("sum(quantity)", columns)` returns `(Call("sum", "quantity"), [])`.
    """
    words, faults = lexis.split(text)
    if not words:
        return Call(""), faults
    function = words[0].text.lower()
    end = _closing(words)
    if function not in NAMES or end is None:
        return Call(""), [_unshaped(words, function)]
    condition, behind = _filter(text, words[end + 1 :], columns)
    inside = words[2:end]
    if [word.text for word in inside] == ["*"]:
        return Call(function).filtered(condition), faults + behind + _count_only(function)
    begin, stop, by = words[1].end, words[end].start, None
    if function == "count" and len(inside) > 1 and inside[0].says("distinct"):
        function, begin, inside = DISTINCT, inside[0].end, inside[1:]
    if FUNCTIONS[function].chooses:
        comma = lexis.comma_in(inside)
        if comma is None:
            return Call(function), [*faults, *behind, Fault(f"`{function}` takes two expressions", _BY)]
        by = text[inside[comma].end : stop].strip()
        faults += _argument_faults(inside[comma + 1 :], by, function, columns)
        stop, inside = inside[comma].start, inside[:comma]
    argument = text[begin:stop].strip()
    if by is None:
        faults += behind + _argument_faults(inside, argument, function, columns)
    else:
        faults += behind + check_expression(argument, columns)
    return Call(function, argument, by).filtered(condition), faults


def _filter(
    text: str, words: list[lexis.Word], columns: ColumnTypes | None
) -> tuple[str | None, list[Fault]]:
    """Return the condition of `filter (where …)` behind an aggregate, or None; and the faults of what is
    there.
    """
    if not words:
        return None, []
    if not words[0].says("filter"):
        return None, [_after(words)]
    if len(words) < 5 or not (words[1].says("(") and words[2].says("where")):
        return None, [Fault("`filter` has no condition", _FILTER)]
    if _closing(words) != len(words) - 1:
        return None, [Fault("there is more behind `filter`", _FILTER)]
    condition = text[words[2].end : words[-1].start].strip()
    if faults := check_expression(condition, columns):
        return None, faults
    if type_ := type_of_no_condition(condition, columns):
        return None, [Fault(f"the condition of `filter` is {type_.text}, neither true nor false", _FILTER)]
    return f"({condition})", []


def _closing(words: list[lexis.Word]) -> int | None:
    """Return the position of the parenthesis that closes the one behind the first word; None if
    there is none.
    """
    depth = 0
    for at, word in enumerate(words[1:], start=1):
        depth += word.says("(") - word.says(")")
        if depth == 0:
            # At position 1 it closes nothing: the text is not a call.
            return at if at > 1 else None
    return None


def _unshaped(words: list[lexis.Word], function: str) -> Fault:
    if len(words) > 1 and words[1].says("(") and function not in NAMES:
        fix = did_you_mean(function, NAMES, _EXAMPLE)
        return Fault(f"`{function}` is not an aggregate that can be used", fix)
    return Fault("it is not an aggregate", _EXAMPLE)


def _after(words: list[lexis.Word]) -> Fault:
    otherwise = Fault(
        f"there is `{words[0].text}` behind the aggregate",
        "Write one aggregate; compute with its result in a later stage's `select`.",
    )
    return _REFUSED.get(words[0].text.lower(), otherwise)


def _count_only(function: str) -> list[Fault]:
    return (
        []
        if function == "count"
        else [Fault(f"`{function}(*)` has no argument", f"Write `{function}(quantity)`.")]
    )


def _argument_faults(
    inside: list[lexis.Word], argument: str, function: str, columns: ColumnTypes | None
) -> list[Fault]:
    if not inside:
        return [Fault(f"`{function}()` has no argument", _EXAMPLE)]
    # A single word may be a column with that name.
    if len(inside) > 1 and inside[0].says("distinct", "all"):
        return [_DISTINCT]
    if lexis.comma_in(inside) is not None:
        return [Fault(f"`{function}` takes one expression", "Keep the first. Nulls are always ignored.")]
    # An expression over one record, as in `select`: Spark computes it before the shuffle.
    if faults := check_expression(argument, columns):
        return faults
    type_ = expression_type(argument, columns)
    takes = FUNCTIONS[function].takes
    if takes == "numbers" and group(type_) not in ("number", None):
        fix = "Give it a number, such as `cast(x as double)` or `if(x, 1, 0)`."
        return [Fault(f"`{function}` takes numbers, not {type_ and type_.text}", fix)]
    if takes == "booleans" and group(type_) not in ("boolean", None):
        fix = f"Write a condition: `{function}(quantity > 0)`."
        return [Fault(f"`{function}` takes true or false, not {type_ and type_.text}", fix)]
    if takes == "single values" and group(type_) == "nested":
        return [Fault(f"`{function}` takes single values, not {type_ and type_.text}", "Give it one field.")]
    return []


def result_type(aggregate: Aggregate, columns: ColumnTypes | None) -> Type | None:
    """Return the type of an aggregate's result; None if only Spark can tell it.

    Example: that of `Aggregate("n", "count")` is `BIGINT`.
    """
    function, argument = aggregate.function, aggregate.argument
    type_ = expression_type(argument, columns) if argument is not None else BIGINT
    if function.startswith("collect_"):
        element = type_ or ANY
        return Type(f"array<{element.text}>", "array", parts=(element,))
    if function in ("count", DISTINCT):
        return BIGINT
    if type_ is None or not type_.is_known or FUNCTIONS[function].chooses:
        return type_
    return type_of(FUNCTIONS[function].result_type(pa.field(function, arrow_type(type_))))


# as it is read


def _read(text: str, info: Info) -> str:
    _, faults = parse_aggregate(text, scope_of(info).stage.columns)
    if faults:
        raise as_mistake(faults)
    return text


def _note(written: Any, info: Info) -> Any:
    """Note the names of the emitted columns before the aggregates are read, so that later fields can refer to
    an aggregate that has a mistake without a second message.
    """
    stage = scope_of(info).stage
    stage.collects = None if written is None else written == kernel.Collect.word
    stage.aggregates = isinstance(written, dict)
    if isinstance(written, dict):
        stage.emitted = dict.fromkeys(map(str, written)) if written else None
    return written


def _resolve(written: str | dict[str, str], info: Info) -> kernel.Reduce:
    stage = scope_of(info).stage
    keys = {key.lower(): key for key in stage.keys or ()}
    if isinstance(written, str):
        if WORDS[written].lists_events and EVENTS in keys:
            fix = "Use another key column: `collect` emits its events under that name."
            raise mistake(f"`{keys[EVENTS]}` is a key column, and the column that `collect` emits", fix)
        return WORDS[written]
    if not written:
        raise mistake("there is no aggregate", 'Write for example `reduce: {total: "sum(quantity)"}`.')
    if (name := names.repeated_name(written)) is not None:
        raise mistake(f"`{name}` appears twice", "Names have to differ in more than case.")
    if taken := [name for name in written if name.lower() in keys]:
        fix = f"Give it another name; the key column `{keys[taken[0].lower()]}` is in the outbox anyway."
        raise mistake(f"`{taken[0]}` is a key column, but is also an aggregate", fix)
    aggregates = []
    for name, text in written.items():
        call, _ = parse_aggregate(text, stage.columns)
        aggregates.append(Aggregate(name, *call))
    stage.emitted = {aggregate.name: result_type(aggregate, stage.columns) for aggregate in aggregates}
    return Aggregates(tuple(aggregates))


_Texts = dict[Annotated[str, AfterValidator(names.check_emitted)], Annotated[str, AfterValidator(_read)]]
if TYPE_CHECKING:
    Reduce = kernel.Reduce
else:
    # Read as a mapping first, so that each mistake is reported at its own aggregate.
    Reduce = Annotated[
        Annotated[
            Annotated[Literal[tuple(WORDS)], Tag("word")] | Annotated[_Texts, Tag("aggregates")],
            Discriminator(lambda written: "aggregates" if isinstance(written, dict) else "word"),
        ],
        BeforeValidator(_note),
        AfterValidator(_resolve),
        StoredAs((Latest, Collect, Aggregates)),
    ]


def _check_form(written: Any) -> Any:
    if written is None or isinstance(written, dict) or written == "nulls":
        return written
    raise mistake(
        f"{shown(written)} is not known", "Write `nulls`, or `{text: __debezium_unavailable_value}`."
    )


if TYPE_CHECKING:
    Unchanged = kernel.Unchanged | None
else:
    _NULLS = Annotated[Literal["nulls"], AfterValidator(lambda _: kernel.Unchanged())]
    _READERS = {"text": Reader(Annotated[str, Field(min_length=1)])}
    Unchanged = Annotated[
        Annotated[_NULLS, Tag("word")]
        | Annotated[read_as(kernel.Unchanged, _READERS), Tag("text")]
        | Annotated[None, Tag("none")],
        Discriminator(
            lambda written: "none" if written is None else "word" if isinstance(written, str) else "text"
        ),
        BeforeValidator(_check_form),
    ]


def check_unchanged(unchanged: Any, info: Info) -> Any:
    """Check that the stage has the last value of each key, with columns as they are in the records.

    Only then it can fill in an unchanged column. Returns the option; raises a mistake otherwise.
    """
    if unchanged is None:
        return unchanged
    data = info.data
    if scope_of(info).before is not None:
        raise mistake("a later stage gets whole values", "Put `unchanged` into the first stage.")
    # A reduce with mistakes is reported already.
    reduce = data.get("reduce")
    if (reduce is not None and not reduce.newest_only) or data.get("window") is not None:
        fix = "Use `reduce: latest` without a window in this stage, and others after it."
        raise mistake("only the `latest` value of a key can give the value of an unchanged column", fix)
    if "emit" in data and not data["emit"].emits_whole_values(tuple(data.get("select") or ())):
        fix = "Use `on: update`, or `on: change` in all columns and `equal: exact`; leave out `where`."
        raise mistake("the next record could not refer to a value that the stage does not emit", fix)
    if scope_of(info).lookups:
        fix = "Look columns up in another pipeline, which reads this one's output."
        raise mistake("a lookup gives present columns, not those of the last record", fix)
    if data.get("where") is not None:
        fix = "Leave `where` out, and test the condition in a stage after it."
        raise mistake("the next record could not refer to a value that `where` drops", fix)
    _check_select(data.get("select") or {}, info)
    return unchanged


def _check_select(select: Mapping[str, str], info: Info) -> None:
    columns = scope_of(info).stage.columns
    for name, expression in select.items():
        if columns is not None and expression.strip().strip("`") not in columns:
            fix = "Select the columns that it is made of, and compute it in a stage after this one."
            raise mistake(f"`{name}` is computed from columns that may be unchanged", fix)
