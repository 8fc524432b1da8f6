"""`reduce`: how a stage folds records into a value: `latest`, `collect`, or aggregates.

`unchanged` says which columns of a record leave the value as it was, such as a large column that a database
did not log. `retract` takes back what an emission of the stage before replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, InstanceOf, Tag, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.expressions.types import Type
from tidegate.kernel import Aggregates
from tidegate.kernel.aggregates.python import PythonAggregate
from tidegate.kernel.reduce.collect import EVENTS, Collect
from tidegate.kernel.reduce.latest import Latest
from tidegate.kernel.strategies.join import Joined
from tidegate.model import names
from tidegate.model.columns import read_type
from tidegate.model.formula import parse_column, parsed_aggregates, result_types, with_members
from tidegate.model.mistakes import as_mistake, listed, mistake, shown
from tidegate.model.options import Reader, read_as
from tidegate.model.scope import StoredAs, scope_of
from tidegate.model.sql import check_expression
from tidegate.model.trusted import check_class

WORDS: Mapping[str, kernel.Reduce] = {reduce.word: reduce for reduce in (Latest(), Collect())}
"""The word in a file -> the reduce; aggregates have names in place of a word."""


# as it is read


def _read(text: str, info: Info) -> str:
    _, faults = parse_column(text, scope_of(info).stage.columns)
    if faults:
        raise as_mistake(faults)
    return text


def _check_of(text: str, info: Info) -> str:
    if faults := check_expression(text, scope_of(info).stage.columns):
        raise as_mistake(faults)
    return text


def _read_type(text: Any) -> Any:
    return read_type(text) if isinstance(text, str) else text


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


def _resolve(written: str | dict[str, str | PythonAggregate], info: Info) -> kernel.Reduce:
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
    aggregates = parsed_aggregates(written, stage.columns)
    if not aggregates.aggregates:
        raise mistake("there is no aggregate", 'Write for example `reduce: {total: "sum(quantity)"}`.')
    stage.emitted = result_types(aggregates, stage.columns)
    return with_members(aggregates) if stage.retracts else aggregates


if TYPE_CHECKING:
    Reduce = kernel.Reduce
else:
    _PYTHON = read_as(
        PythonAggregate,
        {
            "class": Reader(Annotated[str, AfterValidator(check_class)]),
            "expression": Reader(Annotated[str, AfterValidator(_check_of)] | None),
            "type": Reader(
                Annotated[InstanceOf[Type], BeforeValidator(_read_type), WithJsonSchema({"type": "string"})],
                lambda type_: type_.text,
            ),
        },
    )
    _Column = Annotated[
        Annotated[str, AfterValidator(_read), Tag("text")] | Annotated[_PYTHON, Tag("class")],
        Discriminator(lambda written: "class" if isinstance(written, dict) else "text"),
    ]
    _Texts = dict[Annotated[str, AfterValidator(names.check_emitted)], _Column]
    # Read as a mapping first, so that each mistake is reported at its own aggregate.
    Reduce = Annotated[
        Annotated[
            Annotated[Literal[tuple(WORDS)], Tag("word")] | Annotated[_Texts, Tag("aggregates")],
            Discriminator(lambda written: "aggregates" if isinstance(written, dict) else "word"),
        ],
        BeforeValidator(_note),
        AfterValidator(_resolve),
        StoredAs((Latest, Collect, Aggregates, Joined)),
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
    if data.get("ttl") is not None:
        fix = "Leave `ttl` out, and let the state of a stage after this one expire."
        raise mistake("the next record could not refer to a value that has expired", fix)
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


_NO_STATE = "Leave `retract` out: then each emission counts as one more record."


def check_retract(retract: bool, info: Info) -> bool:
    """Check that a stage can retract: it aggregates a table, the last emissions of the stage before, and its
    aggregates can take values back. Raises a mistake otherwise.
    """
    if not retract:
        return retract
    before, data = scope_of(info).before, info.data
    if before is None:
        fix = "Put `retract` into a later stage."
        raise mistake("the first stage reads records, which replace nothing", fix)
    if before.forgets or not before.replaces:
        why = before.forgets or "each of them is an event of its own"
        raise mistake(f"the stage before does not say what its emissions replace: {why}", _NO_STATE)
    reduce = data.get("reduce")
    if reduce is not None and not isinstance(reduce, Aggregates):
        fix = 'Write for example `reduce: {stock: "sum(quantity)"}`.'
        raise mistake("only aggregates take values back", fix)
    _check_aggregates(reduce)
    for name, why in _EXCLUDED.items():
        if data.get(name) is not None:
            raise mistake(f"`{name}` does not go with `retract`: {why}", f"Leave `{name}` out.")
    _check_emit(data.get("emit"))
    return retract


_EXCLUDED = {
    "window": "a row of a table has no time of its own",
    "ttl": "the values of a group that has expired could not be taken back",
    "filter": "write `filter (where …)` behind each aggregate",
}


def _check_aggregates(reduce: Aggregates | None) -> None:
    fixed = [part.text for part in reduce or () if part.rule.takes_back == "never"]
    if fixed:
        what = f"{listed(fixed)} depends on the order of records, and cannot take a value back"
        raise mistake(what, "Use `max_by(x, y)` or `min_by(x, y)`.")


def _check_emit(emit: object) -> None:
    if emit is None:
        return
    if getattr(emit, "empties", False):
        fix = "Use `on: update`, `on: change`, `on: time_limit` or `on: interval`."
        raise mistake("what has gone out with a flush cannot be taken back", fix)
    if getattr(emit, "bound", None) is not None:
        fix = "Leave `buffer` out, or write `when_full: spill`."
        raise mistake("with a bounded buffer, a group has a state in each partition", fix)


def check_on_error(on_error: str, info: Info) -> str:
    """Check that a stage which retracts stops at a record that it cannot use."""
    if on_error == "quarantine" and info.data.get("retract"):
        fix = "Leave `on_error` out."
        what = "a row that was put aside would be taken back later, although it was never added"
        raise mistake(what, fix)
    return on_error
